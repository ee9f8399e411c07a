"""The least that can be called a router: what the hub's speed is measured against.

    python -m benchmarks.hub.relay --port 7777

One WebSocket port; frames are `[kind, id, name, body]` in JSON, and bodies are never decoded. It checks nothing, bounds
nothing and forgets nobody. What it does do is write once per connection and loop pass, however much there is to say.
With `--bare` it holds its connections and says nothing: then its memory is the library's own.
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
"""As large as the hub's."""
SHORT: Final = [bytes((0x81, size)) for size in range(126)]


def framed(payload: bytes) -> bytes:
    """Return a text frame as a server sends it."""
    size = len(payload)
    return (SHORT[size] if size < 126 else b"\x81\x7e" + size.to_bytes(2, "big")) + payload


class Relay:
    """Who offers what, who follows what, who waits for what, and who has something to read."""

    def __init__(self) -> None:
        self.callees: dict[str, Connection] = {}
        self.followers: dict[str, list[Connection]] = {}
        self.pending: dict[int, tuple[Connection, int]] = {}
        self.last = 0
        self.waiting: list[Connection] = []
        self.loop = asyncio.get_running_loop()

    def say(self, connection: "Connection", frame: bytes) -> None:
        """Write it at the end of this pass of the loop."""
        out = connection.out
        if not out:
            if not self.waiting:
                self.loop.call_soon(self.flush)
            self.waiting.append(connection)
        out.append(frame)

    def flush(self) -> None:
        """Write once to each who has something to read."""
        for connection in self.waiting:
            connection.write(b"".join(connection.out))
            connection.out.clear()
        self.waiting.clear()


class Connection(WSListener):
    """One peer."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.out: list[bytes] = []

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Begin."""
        self.write = transport.underlying_transport.write

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        """Do what the frame says."""
        relay = self.relay
        payload = frame.get_payload_as_bytes()
        message = DECODE(payload)
        kind = message.kind
        if kind == CALL:
            relay.last = number = relay.last + 1
            relay.pending[number] = (self, message.id)
            name = message.name
            relay.say(relay.callees[name], framed(b'[1,%d,"%b",%b]' % (number, name.encode(), message.body)))
        elif kind == RESULT:
            caller, number = relay.pending.pop(message.id)
            relay.say(caller, framed(b'[2,%d,"",%b]' % (number, message.body)))
        elif kind == PUBLISH:
            out = framed(payload)
            for follower in relay.followers[message.name]:
                relay.say(follower, out)
        elif kind == REGISTER:
            relay.callees[message.name] = self
            relay.say(self, framed(payload))
        elif kind == SUBSCRIBE:
            relay.followers.setdefault(message.name, []).append(self)
            relay.say(self, framed(payload))

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        """End."""
        for followers in self.relay.followers.values():
            if self in followers:
                followers.remove(self)


async def serve(port: int, *, bare: bool) -> None:
    """Serve until the process is ended."""
    relay = Relay()

    def listener(_request: WSUpgradeRequest) -> WSListener:
        return WSListener() if bare else Connection(relay)

    server = await ws_create_server(listener, "127.0.0.1", port, read_buffer_init_size=READ_BUFFER, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bare", action="store_true", help="hold connections and say nothing")
    options = parser.parse_args()
    uvloop.run(serve(options.port, bare=options.bare))


if __name__ == "__main__":
    main()
