"""A way around readers of closed connections, which block a file descriptor.

aiofastnet adds the reader of a new connection in a later callback, also if the connection was closed before that, as
when its opening is cancelled. The loop then keeps a reader for a closed socket. The next one with this number replaces
its callback, but is never woken, since the loop does not ask the system again: so a ZeroMQ socket removes the reader
first. On uvloop the reader may become a closed handle, and each attempt to use the number is a RuntimeError.
"""

import asyncio
import socket
from typing import Final

_STALE: Final = "the handler is closed"


def forget_stale_handle(error: RuntimeError) -> bool:
    """Return whether a socket met a stale handle just now and was closed; the next one can then use the number."""
    if _STALE not in str(error):
        return False
    with socket.socket() as same_number:
        asyncio.get_running_loop().remove_writer(same_number)
    return True
