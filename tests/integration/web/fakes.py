"""A WebSocket server that says what it is told to, sense or nonsense."""

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
class Fake:
    """Greets each who connects, and says one frame of the script to it, the next one to the next."""

    greeting: Sequence[str]
    script: Sequence[str | bytes]
    subprotocol: str
    url: str = ""
    heard: "queue.Queue[str]" = field(default_factory=queue.Queue)
    over: threading.Event = field(default_factory=threading.Event)
    """The script is over, and who has connected last was greeted."""

    def talk(self, stream: socket.socket, number: int) -> None:
        """Have one conversation."""
        shake_hands(stream, self.subprotocol)
        self.hear(stream)
        for text in self.greeting:
            stream.sendall(frame(text))
        if number < len(self.script):
            stream.sendall(frame(self.script[number]))
        else:
            self.over.set()
        while True:
            self.hear(stream)

    def hear(self, stream: socket.socket) -> None:
        """Take a frame of the client's; EOFError if it is gone."""
        head = read(stream, 2)
        length = head[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(read(stream, 2 if length == 126 else 8))
        mask = read(stream, 4)
        payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(read(stream, length)))
        if head[0] & 0x0F == 8:
            raise EOFError
        self.heard.put(payload.decode(errors="replace"))


def shake_hands(stream: socket.socket, subprotocol: str) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        head += read(stream, 1)
    lines = head.decode("latin-1").split("\r\n")
    key = next(line.partition(":")[2].strip() for line in lines if line.lower().startswith("sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1(key.encode() + _SALT).digest()).decode()  # noqa: S324  the protocol has it
    answer = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    answer += [f"Sec-WebSocket-Accept: {accept}", f"Sec-WebSocket-Protocol: {subprotocol}", "", ""]
    stream.sendall("\r\n".join(answer).encode())


def read(stream: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = stream.recv(length - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def frame(data: str | bytes) -> bytes:
    payload = data.encode() if isinstance(data, str) else data
    kind = 0x81 if isinstance(data, str) else 0x82
    if len(payload) < 126:
        return bytes([kind, len(payload)]) + payload
    return bytes([kind, 126]) + len(payload).to_bytes(2) + payload


class Answerer(Fake):
    """A hub in LRPM that knows what to say to each call: the rest of ERRORs (20) and RESULTs (41), by the name."""

    def __init__(self, answers: dict[str, list[list[Any]]]) -> None:
        super().__init__(['[2,{"session":"x"},{}]'], [], "lrpm.json")
        self.answers = answers

    def talk(self, stream: socket.socket, number: int) -> None:
        """Greet, and answer calls."""
        shake_hands(stream, self.subprotocol)
        while True:
            self.hear(stream)
            kind, *fields = json.loads(self.heard.get_nowait())
            if kind == _HELLO:
                stream.sendall(frame(self.greeting[0]))
            if kind == _CALL:
                for answer, *rest in self.answers[fields[1]]:
                    about = [_CALL, fields[0]] if answer == _ERROR else [fields[0]]
                    stream.sendall(frame(json.dumps([answer, *about, *rest])))


class Partner(Fake):
    """A hub in NQ that a test speaks for: it says nothing by itself but who the client is."""

    def __init__(self) -> None:
        super().__init__(['{"e":{"type":"sys","note":"peer","args":["0123","run"]}}'], [], "nq.1")
        self.stream: socket.socket | None = None
        self._unread: deque[dict[str, Any]] = deque()

    def talk(self, stream: socket.socket, number: int) -> None:
        """Have one conversation; the last one is the one to speak in."""
        self.stream = stream
        super().talk(stream, number)

    def say(self, *messages: object) -> None:
        """Say messages, in one packet."""
        assert self.stream is not None
        self.stream.sendall(frame(json.dumps(messages)))

    def next(self, **wanted: object) -> dict[str, Any]:
        """Wait for a message that has these, and give it; those before it are forgotten."""
        while True:
            while self._unread:
                message = self._unread.popleft()
                if all(message.get(key) == value for key, value in wanted.items()):
                    return message
            packet = json.loads(self.heard.get(timeout=PATIENCE))
            self._unread.extend(packet if isinstance(packet, list) else [packet])

    def request(self, target: str, number: str, data: object = None) -> None:
        """Ask the client for something."""
        self.say({"t": target, "r": number, "d": data})


@contextmanager
def serving(made: Fake) -> Iterator[None]:
    """Let it talk to all who connect to a free port."""
    streams: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def talk(stream: socket.socket, number: int) -> None:
        with suppress(EOFError, OSError), stream:
            made.talk(stream, number)

    def accept() -> None:
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                threads.append(threading.Thread(target=talk, args=(stream, len(streams))))
                streams.append(stream)
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        made.url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
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
