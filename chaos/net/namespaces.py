"""Two network namespaces, each with a TUN device whose packets this process relays.

The kernel's own `netem` would do the same, but is not part of every kernel; TUN devices are. Packets that pass through
this process need no offloading, no bridge and no `tc`. Every exit but SIGKILL removes the namespaces; the next run
removes those of a killed one.

A hub binds ZeroMQ only to loopback, so both ends have loopback addresses: with `route_localnet` the kernel routes these
over a device.
"""

import fcntl
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

HUB: Final = "127.213.77.1"
CLIENTS: Final = "127.213.77.2"
_TUN: Final = Path("/dev/net/tun")
_NAMESPACES: Final = Path("/run/netns")
_PREFIX: Final = "fiveways-chaos"
_ROUTES_LOOPBACK: Final = "/proc/sys/net/ipv4/conf/all/route_localnet"
_SET_INTERFACE: Final = 0x400454CA
_TUN_WITHOUT_HEADER: Final = 0x0001 | 0x1000


@dataclass(frozen=True)
class Side:
    """One end of the network."""

    namespace: str
    address: str
    device: int
    """The file descriptor of its packets."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command that runs another one in the namespace."""
        return "ip", "netns", "exec", self.namespace

    def retransmissions(self) -> int:
        """Return the number of TCP segments that were retransmitted from this side."""
        text = _run(*self.prefix, "cat", "/proc/net/snmp")
        names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
        return int(values[names.index("RetransSegs")])


def missing() -> str:
    """Return the reason why such a network is impossible here; empty if it is possible."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if which("ip") is None:
        return "the command ip (iproute2) is missing"
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as exc:
        return f"{_TUN} cannot be opened: {exc.strerror}"
    name = _namespace_name("probe")
    try:
        _run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as exc:
        return f"no network namespace can be made: {exc.stderr.strip()}"
    finally:
        _delete(name)
    return ""


@contextmanager
def network() -> Iterator[tuple[Side, Side]]:
    """Create the sides of the hub and of the clients, and remove both at the end."""
    remove_leftovers()
    with ExitStack() as stack:
        yield _side(stack, "hub", HUB), _side(stack, "clients", CLIENTS)


def remove_leftovers() -> None:
    """Remove the namespaces of killed runs, and kill the processes in them.

    A device ends with the process that opened it.
    """
    for path in sorted(_NAMESPACES.glob(f"{_PREFIX}-*")) if _NAMESPACES.is_dir() else ():
        pid = path.name.split("-")[2]
        if not Path("/proc", pid).exists():
            for process in _run("ip", "netns", "pids", path.name).split():
                os.kill(int(process), signal.SIGKILL)
            _delete(path.name)


def _side(stack: ExitStack, role: str, address: str) -> Side:
    namespace, device = _namespace_name(role), f"fw{os.getpid()}{role[0]}"
    stack.callback(_delete, namespace)
    _run("ip", "netns", "add", namespace)
    packets = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    stack.callback(os.close, packets)
    fcntl.ioctl(packets, _SET_INTERFACE, struct.pack("16sH22x", device.encode(), _TUN_WITHOUT_HEADER))
    _run("ip", "link", "set", "dev", device, "netns", namespace)
    inside = ("ip", "-n", namespace)
    _run(*inside, "link", "set", "lo", "up")
    _run(*inside, "address", "delete", "127.0.0.1/8", "dev", "lo")
    _run(*inside, "address", "add", "127.0.0.1/32", "dev", "lo")
    _run("ip", "netns", "exec", namespace, "sh", "-c", f"echo 1 > {_ROUTES_LOOPBACK}")
    _run(*inside, "address", "add", f"{address}/24", "dev", device)
    _run(*inside, "link", "set", "dev", device, "mtu", "1500", "up")
    return Side(namespace, address, packets)


def _delete(namespace: str) -> None:
    """Delete a namespace if it exists."""
    subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)  # noqa: S603, S607


def _namespace_name(role: str) -> str:
    return f"{_PREFIX}-{os.getpid()}-{role}"


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
