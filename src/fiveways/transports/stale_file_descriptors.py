"""Workaround for stale readers of closed connections, which block a file descriptor.

aiofastnet adds the reader of a new connection in a later callback, even if the connection was closed before, for
example when its opening is cancelled. The event loop then keeps a reader for a closed socket. On asyncio, the next
socket with this number replaces the callback but is never woken, because the loop does not register it again with the
system. A ZeroMQ socket therefore removes the reader first. On uvloop, the reader may become a closed handle, and each
attempt to use the number raises RuntimeError.
"""

import asyncio
import socket
from typing import Final

_STALE: Final = "the handler is closed"


def forget_stale_handle(error: RuntimeError) -> bool:
    """Return whether `error` is due to a stale handle, after removing it; the next socket can use the number."""
    if _STALE not in str(error):
        return False
    with socket.socket() as same_number:
        asyncio.get_running_loop().remove_writer(same_number)
    return True
