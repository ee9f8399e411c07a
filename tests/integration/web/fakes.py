"""WebSocket servers that a test controls, also with invalid frames."""

import base64
import hashlib
import json
import queue
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.integration.web.browsers import PATIENCE

_SALT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_HELLO, _ERROR, _CALL = 2, 20, 40


@dataclass
class FakeHub:
    """Greets each connection and sends it one frame of the script; the next connection gets the next frame."""

    greeting: Sequence[str]
    script: Sequence[str | bytes]
    subprotocol: str
    url: str = ""
    received: "queue.Queue[str]" = field(default_factory=queue.Queue)
    script_done: threading.Event = field(default_factory=threading.Event)
    """Set after the script is finished and the last connection was greeted."""

    def converse(self, stream: socket.socket, number: int) -> None:
        """Serve one connection."""
        shake_hands(stream, self.subprotocol)
        self.receive(stream)
        for text in self.greeting:
            stream.sendall(frame(text))
        if number < len(self.script):
            stream.sendall(frame(self.script[number]))
        else:
            self.script_done.set()
        while True:
            self.receive(stream)

    def receive(self, stream: socket.socket) -> None:
        """Read a frame of the client; EOFError if the connection is closed."""
        head = read(stream, 2)
        length = head[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(read(stream, 2 if length == 126 else 8))
        mask = read(stream, 4)
        payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(read(stream, length)))
        if head[0] & 0x0F == 8:
            raise EOFError
        self.received.put(payload.decode(errors="replace"))


def shake_hands(stream: socket.socket, subprotocol: str) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        head += read(stream, 1)
    lines = head.decode("latin-1").split("\r\n")
    key = next(line.partition(":")[2].strip() for line in lines if line.lower().startswith("sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1(key.encode() + _SALT).digest()).decode()  # noqa: S324  required by the protocol
    answer = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    answer += [f"Sec-WebSocket-Accept: {accept}", f"Sec-WebSocket-Protocol: {subprotocol}", "", ""]
    stream.sendall("\r\n".join(answer).encode())


def read(stream: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = stream.recv(length - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def frame(data: str | bytes) -> bytes:
    payload = data.encode() if isinstance(data, str) else data
    kind = 0x81 if isinstance(data, str) else 0x82
    if len(payload) < 126:
        return bytes([kind, len(payload)]) + payload
    return bytes([kind, 126]) + len(payload).to_bytes(2) + payload


class AnsweringHub(FakeHub):
    """An LRPM hub with fixed responses per method: the fields of ERROR (20) and RESULT (41) after the id."""

    def __init__(self, answers: dict[str, list[list[Any]]]) -> None:
        super().__init__(['[2,{"session":"x"},{}]'], [], "lrpm.json")
        self.answers = answers

    def converse(self, stream: socket.socket, number: int) -> None:
        """Perform the handshake, and answer calls."""
        shake_hands(stream, self.subprotocol)
        while True:
            self.receive(stream)
            kind, *fields = json.loads(self.received.get_nowait())
            if kind == _HELLO:
                stream.sendall(frame(self.greeting[0]))
            if kind == _CALL:
                for answer, *rest in self.answers[fields[1]]:
                    request = [_CALL, fields[0]] if answer == _ERROR else [fields[0]]
                    stream.sendall(frame(json.dumps([answer, *request, *rest])))


class ScriptedNqHub(FakeHub):
    """An NQ hub that a test controls; by itself it sends only the peer id."""

    def __init__(self) -> None:
        super().__init__(['{"e":{"type":"sys","note":"peer","args":["0123","run"]}}'], [], "nq.1")
        self.stream: socket.socket | None = None
        self._unread: deque[dict[str, Any]] = deque()

    def converse(self, stream: socket.socket, number: int) -> None:
        """Serve one connection; `stream` is the last one."""
        self.stream = stream
        super().converse(stream, number)

    def send(self, *messages: object) -> None:
        """Send messages in one packet."""
        assert self.stream is not None
        self.stream.sendall(frame(json.dumps(messages)))

    def next(self, **expected: object) -> dict[str, Any]:
        """Wait for a message with these values; earlier messages are dropped."""
        while True:
            while self._unread:
                message = self._unread.popleft()
                if all(message.get(key) == value for key, value in expected.items()):
                    return message
            packet = json.loads(self.received.get(timeout=PATIENCE))
            self._unread.extend(packet if isinstance(packet, list) else [packet])

    def request(self, target: str, number: str, data: object = None) -> None:
        """Send a request to the client."""
        self.send({"t": target, "r": number, "d": data})


@contextmanager
def serving(hub: FakeHub) -> Iterator[None]:
    """Run a server for all connections on a free port."""
    streams: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def converse(stream: socket.socket, number: int) -> None:
        with suppress(EOFError, OSError), stream:
            hub.converse(stream, number)

    def accept() -> None:
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                threads.append(threading.Thread(target=converse, args=(stream, len(streams))))
                streams.append(stream)
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        hub.url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        threads.append(threading.Thread(target=accept))
        threads[-1].start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for stream in streams:
                with suppress(OSError):
                    stream.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
