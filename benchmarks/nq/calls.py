"""NQ requests to an LRPM callee; the caller encodes its packets itself and acknowledges every response."""

from time import perf_counter
from typing import Final

import msgspec

from benchmarks.hub.calls import Callee, Caller, connect, timed
from benchmarks.hub.codecs import BODY, LRPM_JSON, Handshake, UnexpectedFrame
from benchmarks.hub.links import Link, open_websocket
from benchmarks.hub.results import Sample
from benchmarks.hub.routers import Router

_REQUEST: Final = b'{"t":"bench-echo","r":"NUMBER","d":%b}' % BODY
_NUMBER: Final = slice(6, 13)
"""The place of the number in a body."""


class ReceivedMessage(msgspec.Struct):
    """A message of the hub: an acceptance, or a response with data; other messages do not decode."""

    a: str
    i: str
    d: msgspec.Raw = msgspec.Raw()


class NqCallCodec:
    """Encodes requests and decodes packets of the hub."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(ReceivedMessage | list[ReceivedMessage]).decode

    def encode_call(self, number: int) -> bytes:
        """Return a request."""
        return _REQUEST.replace(b"NUMBER", b"%d" % number)

    def decode_packet(self, packet: bytes) -> list[ReceivedMessage]:
        """Return the messages of a packet."""
        messages = self._decode(packet)
        return messages if isinstance(messages, list) else [messages]

    def answered(self, answer: bytes) -> int:
        """Return the number of the answered request, if the packet is one response."""
        (message,) = self.decode_packet(answer)
        return number_of(message)


def number_of(answer: ReceivedMessage) -> int:
    """Return the number of the answered request."""
    if bytes(answer.d)[_NUMBER] != answer.i.encode():
        raise UnexpectedFrame(repr(answer))
    return int(answer.i)


class NqCaller(Caller):
    """Writes one packet per call: the next request, with the acknowledgement of the last response."""

    def __init__(self, link: Link, codec: NqCallCodec) -> None:
        super().__init__(link, codec)
        self._messages = codec.decode_packet

    def _on_frame(self, packet: bytes) -> None:
        for message in self._messages(packet):
            if message.d:
                self._handle_response(message)

    def _handle_response(self, answer: ReceivedMessage) -> None:
        # A response to an unknown or answered request raises KeyError here.
        sent_at = self._pending.pop(number_of(answer))
        now = perf_counter()
        self.latencies.append(now - sent_at)
        acknowledgement = b'{"i":"%b"}' % answer.a.encode()
        if now < self._stop_at:
            number = self._number
            self._number = number + 1
            self._pending[number] = now
            self._send(b"[%b,%b]" % (acknowledgement, self._call(number)))
            return
        self._send(acknowledgement)
        if not self._pending:
            self._done.set_result(now)


async def measure(router: Router, in_flight: int, seconds: float) -> Sample:
    """Measure once, on fresh connections."""
    url = f"ws://127.0.0.1:{router.port}/nq"
    links = [await connect(router, LRPM_JSON), await open_websocket(url, "nq.1", is_text=True, batches=False)]
    try:
        await links[0].ask(LRPM_JSON.register)
        await links[1].ask(Handshake(b"", b'{"e":'))  # the hub first sends the peer id
        ends = Callee(links[0], LRPM_JSON), NqCaller(links[1], NqCallCodec())
        return await timed(router, ends, links, in_flight, seconds)
    finally:
        for link in links:
            link.close()
