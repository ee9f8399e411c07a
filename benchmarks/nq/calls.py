"""Requests in NQ to a callee in lrpm: the caller writes its packets itself, and acknowledges every answer."""

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
"""Where the number is in a body."""


class ReceivedMessage(msgspec.Struct):
    """A message of the hub: an acceptance, or with data an answer; anything else does not fit."""

    a: str
    i: str
    d: msgspec.Raw = msgspec.Raw()


class NqCallCodec:
    """What a caller in NQ says and hears."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(ReceivedMessage | list[ReceivedMessage]).decode

    def say_call(self, number: int) -> bytes:
        """Return a request."""
        return _REQUEST.replace(b"NUMBER", b"%d" % number)

    def heard(self, packet: bytes) -> list[ReceivedMessage]:
        """Return the messages of a packet."""
        messages = self._decode(packet)
        return messages if isinstance(messages, list) else [messages]

    def answered(self, answer: bytes) -> int:
        """Return which request this packet answers, if it is nothing but an answer."""
        (message,) = self.heard(answer)
        return number_of(message)


def number_of(answer: ReceivedMessage) -> int:
    """Return which request this answers."""
    if bytes(answer.d)[_NUMBER] != answer.i.encode():
        raise UnexpectedFrame(repr(answer))
    return int(answer.i)


class NqCaller(Caller):
    """Writes one packet for each call: the next request, with the acknowledgement of the answer that made room."""

    def __init__(self, link: Link, speech: NqCallCodec) -> None:
        super().__init__(link, speech)
        self._messages = speech.heard

    def _heard(self, packet: bytes) -> None:
        for message in self._messages(packet):
            if message.d:
                self._take(message)

    def _take(self, answer: ReceivedMessage) -> None:
        # An answer to no request, or a second one to the same, raises KeyError here.
        asked = self._pending.pop(number_of(answer))
        now = perf_counter()
        self.waits.append(now - asked)
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
    """One measurement on fresh connections."""
    url = f"ws://127.0.0.1:{router.port}/nq"
    links = [await connect(router, LRPM_JSON), await open_websocket(url, "nq.1", is_text=True, batches=False)]
    try:
        await links[0].ask(LRPM_JSON.offer)
        await links[1].ask(Handshake(b"", b'{"e":'))  # the hub tells the id first
        ends = Callee(links[0], LRPM_JSON), NqCaller(links[1], NqCallCodec())
        return await timed(router, ends, links, in_flight, seconds)
    finally:
        for link in links:
            link.close()
