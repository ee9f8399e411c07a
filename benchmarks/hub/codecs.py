"""Codecs of the load generator for each contestant: a few byte templates, and the places of the numbers in them.

Every call and every publication has a number of seven digits. It is the request id and the beginning of the body, a
JSON object of 100 bytes that the callee sends back, so each response shows its call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import cbor2

FIRST: Final = 1_000_000
"""The first number; all have the same width, so they are found at a fixed place."""
SIZE: Final = 100
MARK: Final = b"#"
"""Occurs once in every body and never elsewhere, so counting it counts messages."""
BODY: Final = b'{"n":"NUMBER' + MARK + b"x" * (SIZE - 16) + b'"}'
"""The body; the number replaces the placeholder. It is an object because every protocol forwards one unchanged."""
_CBOR_BODY: Final = b"\xa1\x61n\x78\x5fNUMBER" + MARK + b"x" * (SIZE - 13)


class UnexpectedFrame(Exception):
    """A frame that the load generator does not expect."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A message sent before the measurement, and the first bytes of the response."""

    request: bytes
    response: bytes


@dataclass(frozen=True)
class Codec:
    """The frames of one protocol. In templates, NUMBER is the placeholder of the number."""

    opening: tuple[Handshake, ...]
    """The handshake."""
    register: Handshake
    """Registers this end as the callee of `bench.echo`."""
    call: bytes
    """A template of the call."""
    reply: Callable[[bytes], bytes]
    """Returns the response of the callee to a call, with the same body."""
    answer: bytes
    """The first bytes of the response that the caller receives."""
    number: slice
    """The place of the request id in the response."""
    echo: slice
    """The place of the number in its body."""
    subscribe: Handshake
    """Subscribes this end to `bench.news`."""
    publish: bytes
    """A template of the publication."""
    path: str = "/"
    subprotocol: str = ""
    is_text: bool = True
    is_nats: bool = False

    def encode_call(self, number: int) -> bytes:
        """Return a call."""
        return self.call.replace(b"NUMBER", b"%d" % number)

    def encode_publication(self, number: int) -> bytes:
        """Return a publication."""
        return self.publish.replace(b"NUMBER", b"%d" % number)

    def answered(self, answer: bytes) -> int:
        """Return the number of the answered call."""
        number = answer[self.number]
        if number != answer[self.echo] or not answer.startswith(self.answer):
            raise UnexpectedFrame(repr(answer))
        return int(number)


class BinaryCodec(Codec):
    """A codec with ids of four bytes instead of digits; ID is their placeholder."""

    def encode_call(self, number: int) -> bytes:
        """Return a call."""
        return self.call.replace(b"NUMBER", b"%d" % number).replace(b"ID", number.to_bytes(4, "big"))

    def encode_publication(self, number: int) -> bytes:
        """Return a publication."""
        return self.publish.replace(b"NUMBER", b"%d" % number).replace(b"ID", number.to_bytes(4, "big"))

    def answered(self, answer: bytes) -> int:
        """Return the number of the answered call."""
        number = int.from_bytes(answer[self.number], "big")
        if number != int(answer[self.echo]) or not answer.startswith(self.answer):
            raise UnexpectedFrame(repr(answer))
        return number


def _lrpm_reply(call: bytes) -> bytes:
    end = call.index(b",", 4)
    body = end + len(b',"bench.echo",')
    return b"[41,%b,%b,{}]" % (call[4:end], call[body : body + SIZE])


def _cbor_reply(call: bytes) -> bytes:
    # The request id, of any width, is before the method, a text of 10 bytes.
    end = call.index(b"\x6abench.echo", 3)
    body = end + 11
    return b"\x84\x18\x29%b%b\xa0" % (call[3:end], call[body : body + SIZE])


RELAY: Final = Codec(
    opening=(),
    register=Handshake(b'[0,0,"bench.echo",null]', b"[0,0,"),
    call=b'[1,NUMBER,"bench.echo",%b]' % BODY,
    reply=lambda call: b'[2,%b,"",%b]' % (call[3 : call.index(b",", 3)], call[-SIZE - 1 : -1]),
    answer=b"[2,",
    number=slice(3, 10),
    echo=slice(20, 27),
    subscribe=Handshake(b'[3,0,"bench.news",null]', b"[3,0,"),
    publish=b'[4,NUMBER,"bench.news",%b]' % BODY,
)

# A received NATS message is its line and its body, without the line end after it.
NATS: Final = Codec(
    opening=(
        Handshake(b"", b"INFO"),
        Handshake(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB _INBOX.b.* 1\r\nPING\r\n', b"PONG"),
    ),
    register=Handshake(b"UNSUB 1\r\nSUB bench.echo 2\r\nPING\r\n", b"PONG"),
    call=b"PUB bench.echo _INBOX.b.NUMBER 100\r\n%b\r\n" % BODY,
    reply=lambda call: b"PUB %b 100\r\n%b\r\n" % (call[17:33], call[-SIZE:]),
    answer=b"MSG _INBOX.b.",
    number=slice(13, 20),
    echo=slice(34, 41),
    subscribe=Handshake(b"UNSUB 1\r\nSUB bench.news 3\r\nPING\r\n", b"PONG"),
    publish=b"PUB bench.news 100\r\n%b\r\n" % BODY,
    is_nats=True,
)

# Crossbar's responses have details of the callee before the body, so the body is found from the end.
WAMP_JSON: Final = Codec(
    opening=(Handshake(b'[1,"bench",{"roles":{"caller":{},"callee":{},"publisher":{},"subscriber":{}}}]', b"[2,"),),
    register=Handshake(b'[64,1,{},"bench.echo"]', b"[65,1,"),
    call=b'[48,NUMBER,{},"bench.echo",[%b]]' % BODY,
    reply=lambda call: b"[70,%b,{},%b]" % (call[4 : call.index(b",", 4)], call[-SIZE - 3 : -1]),
    answer=b"[50,",
    number=slice(4, 11),
    echo=slice(-SIZE + 4, -SIZE + 11),
    subscribe=Handshake(b'[32,1,{},"bench.news"]', b"[33,1,"),
    publish=b'[16,NUMBER,{},"bench.news",[%b]]' % BODY,
    path="/ws",
    subprotocol="wamp.2.json",
)

LRPM_JSON: Final = Codec(
    opening=(Handshake(b"[2,null,{}]", b"[2,"),),
    register=Handshake(b'[40,256,"hub.register",{"name":"bench.echo"},{}]', b"[41,256,"),
    call=b'[40,NUMBER,"bench.echo",%b,{}]' % BODY,
    reply=_lrpm_reply,
    answer=b"[41,",
    number=slice(4, 11),
    echo=slice(18, 25),
    subscribe=Handshake(b'[63,256,"bench.news",{}]', b"[64,256,"),
    publish=b'[61,NUMBER,"bench.news",%b,{}]' % BODY,
    path="/lrpm",
)

LRPM_CBOR: Final = BinaryCodec(
    opening=(Handshake(cbor2.dumps([2, None, {}]), b"\x83\x02"),),
    register=Handshake(cbor2.dumps([40, 256, "hub.register", {"name": "bench.echo"}, {}]), b"\x84\x18\x29\x19\x01\x00"),
    call=b"\x85\x18\x28\x1aID\x6abench.echo%b\xa0" % _CBOR_BODY,
    reply=_cbor_reply,
    answer=b"\x84\x18\x29\x1a",
    number=slice(4, 8),
    echo=slice(13, 20),
    subscribe=Handshake(cbor2.dumps([63, 256, "bench.news", {}]), b"\x84\x18\x40\x19\x01\x00"),
    publish=b"\x85\x18\x3d\x1aID\x6abench.news%b\xa0" % _CBOR_BODY,
    path="/lrpm",
    is_text=False,
)

UMQ: Final = Codec(
    opening=(Handshake(b"H1.0.0\n", b"W"),),
    register=Handshake(b'M1\nhub:register\n{"name":"bench:echo"}', b"R1\n"),
    call=b"MNUMBER\nbench:echo\n%b" % BODY,
    reply=lambda call: b"R%b\n%b" % (call[1 : call.index(b"\n")], call[-SIZE:]),
    answer=b"R",
    number=slice(1, 8),
    echo=slice(15, 22),
    subscribe=Handshake(b'M1\nhub:subscribe\n{"topic":"bench.news","id":"news"}', b"R1\n"),
    publish=b'MNUMBER\nhub:publish\n{"topic":"bench.news","data":%b}' % BODY,
    path="/umq",
)

# Its ids are in base 36, which includes decimal digits.
UMQ36: Final = Codec(
    opening=(Handshake(b"H1:", b"W"),),
    register=Handshake(b'C1:["hub.register",{"name":"bench.echo"}]', b"R1:"),
    call=b'CNUMBER:["bench.echo",%b]' % BODY,
    reply=lambda call: b"R%b:%b" % (call[1 : call.index(b":")], call[-SIZE - 1 : -1]),
    answer=b"R",
    number=slice(1, 8),
    echo=slice(15, 22),
    subscribe=Handshake(b'C1:["hub.subscribe",{"topic":"bench.news","id":"N"}]', b"R1:"),
    publish=b'CNUMBER:["hub.publish",{"topic":"bench.news","data":%b}]' % BODY,
    path="/umq36",
)
