"""Errors of ports that cannot be opened, and the limits of the HTTP port."""

import errno

from fiveways.errors import FivewaysError
from fiveways.runtime.admin_endpoints import ADMIN_PATHS
from fiveways.settings.limits import LimitSettings
from fiveways.transports.http import HttpLimits


class CannotListen(FivewaysError):
    """The port is in use, or the address is not local."""


def listen_error(host: str, port: int, error: OSError) -> str:
    """Return why a port cannot be opened, and a remedy."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port, or 0 for any free port"
    if error.errno == errno.EACCES:
        return f"port {port} needs root privileges; choose one above 1023 with --port"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"


def http_limits(limits: LimitSettings) -> HttpLimits:
    """Return the limits of the HTTP port."""
    return HttpLimits(
        max_connections=limits.max_sessions,
        max_connections_per_address=limits.max_connections_per_address,
        reserved_paths=frozenset(ADMIN_PATHS),
        max_body=limits.max_text,
        max_unfinished=limits.max_unfinished,
        max_unfinished_per_address=int(limits.max_unfinished * limits.share),
    )
