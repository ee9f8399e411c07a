"""A minimal router, as the reference for the hub's throughput.

    python -m benchmarks.hub.relay --port 7777

One WebSocket port; frames are `[kind, id, name, body]` in JSON, and bodies are never decoded. It checks nothing, has no
limits and never expires anything. It does write once per connection and event loop iteration, like the hub. With
`--bare` it accepts connections and sends nothing: then its memory is that of the library.
"""

import argparse
import asyncio
from typing import Final

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSTransport, WSUpgradeRequest, ws_create_server

REGISTER, CALL, RESULT, SUBSCRIBE, PUBLISH = range(5)


class Message(msgspec.Struct, array_like=True, gc=False):
    """A frame of the relay."""

    kind: int
    id: int
    name: str
    body: msgspec.Raw


DECODE: Final = msgspec.json.Decoder(Message).decode
READ_BUFFER: Final = 1 << 14
"""The same size as the hub's."""
SHORT: Final = [bytes((0x81, size)) for size in range(126)]


def encode_frame(payload: bytes) -> bytes:
    """Return a text frame of a server."""
    size = len(payload)
    return (SHORT[size] if size < 126 else b"\x81\x7e" + size.to_bytes(2, "big")) + payload


class Relay:
    """Callees, subscribers, pending calls, and connections with output."""

    def __init__(self) -> None:
        self.callees: dict[str, Connection] = {}
        self.subscribers: dict[str, list[Connection]] = {}
        self.pending: dict[int, tuple[Connection, int]] = {}
        self.last_id = 0
        self.to_flush: list[Connection] = []
        self.loop = asyncio.get_running_loop()

    def send_later(self, connection: "Connection", frame: bytes) -> None:
        """Write the frame at the end of this event loop iteration."""
        out = connection.outbox
        if not out:
            if not self.to_flush:
                self.loop.call_soon(self.flush)
            self.to_flush.append(connection)
        out.append(frame)

    def flush(self) -> None:
        """Write once to each connection with output."""
        for connection in self.to_flush:
            connection.write(b"".join(connection.outbox))
            connection.outbox.clear()
        self.to_flush.clear()


class Connection(WSListener):
    """One peer."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.outbox: list[bytes] = []

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Keep the transport's write function."""
        self.write = transport.underlying_transport.write

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        """Handle a frame."""
        relay = self.relay
        payload = frame.get_payload_as_bytes()
        message = DECODE(payload)
        kind = message.kind
        if kind == CALL:
            relay.last_id = number = relay.last_id + 1
            relay.pending[number] = (self, message.id)
            name = message.name
            relay.send_later(
                relay.callees[name], encode_frame(b'[1,%d,"%b",%b]' % (number, name.encode(), message.body))
            )
        elif kind == RESULT:
            caller, number = relay.pending.pop(message.id)
            relay.send_later(caller, encode_frame(b'[2,%d,"",%b]' % (number, message.body)))
        elif kind == PUBLISH:
            out = encode_frame(payload)
            for follower in relay.subscribers[message.name]:
                relay.send_later(follower, out)
        elif kind == REGISTER:
            relay.callees[message.name] = self
            relay.send_later(self, encode_frame(payload))
        elif kind == SUBSCRIBE:
            relay.subscribers.setdefault(message.name, []).append(self)
            relay.send_later(self, encode_frame(payload))

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        """Remove the peer's subscriptions."""
        for subscribers in self.relay.subscribers.values():
            if self in subscribers:
                subscribers.remove(self)


async def serve(port: int, *, bare: bool) -> None:
    """Serve until the process is terminated."""
    relay = Relay()

    def listener(_request: WSUpgradeRequest) -> WSListener:
        return WSListener() if bare else Connection(relay)

    server = await ws_create_server(listener, "127.0.0.1", port, read_buffer_init_size=READ_BUFFER, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bare", action="store_true", help="accept connections and send nothing")
    options = parser.parse_args()
    uvloop.run(serve(options.port, bare=options.bare))


if __name__ == "__main__":
    main()
