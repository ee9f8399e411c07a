"""How the load generator speaks to each contestant: a few byte strings, and where the numbers stand in them.

Every call and every publication has a number of seven digits. It is the request's identifier and the beginning of the
body, a JSON object of 100 bytes which the callee sends back, so that each answer shows which call it belongs to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import cbor2

FIRST: Final = 1_000_000
"""The first number; all have the same width, so that they are found by their place."""
SIZE: Final = 100
MARK: Final = b"#"
"""Once in every body and never around it: counting it counts messages."""
BODY: Final = b'{"n":"NUMBER' + MARK + b"x" * (SIZE - 16) + b'"}'
"""What is sent; the number takes the place of the word. An object, as every protocol passes it on as it is."""
_CBOR_BODY: Final = b"\xa1\x61n\x78\x5fNUMBER" + MARK + b"x" * (SIZE - 13)


class UnexpectedFrame(Exception):
    """Something that is not what the generator waits for."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """Something that is said once, before the measurement, and how the answer to it begins."""

    says: bytes
    hears: bytes


@dataclass(frozen=True)
class Codec:
    """One way to speak to a router. In templates, NUMBER stands for the number."""

    opening: tuple[Handshake, ...]
    """The handshake."""
    offer: Handshake
    """Makes this end the callee of `bench.echo`."""
    call: bytes
    """A template: what the caller says."""
    reply: Callable[[bytes], bytes]
    """From what the callee hears to what it answers: the same body."""
    answer: bytes
    """How what the caller hears begins."""
    number: slice
    """Where its identifier is,"""
    echo: slice
    """and where the number in its body."""
    follow: Handshake
    """Subscribes this end to `bench.news`."""
    publish: bytes
    """A template: what the publisher says."""
    path: str = "/"
    subprotocol: str = ""
    is_text: bool = True
    is_nats: bool = False

    def say_call(self, number: int) -> bytes:
        """Return a call."""
        return self.call.replace(b"NUMBER", b"%d" % number)

    def say_publish(self, number: int) -> bytes:
        """Return a publication."""
        return self.publish.replace(b"NUMBER", b"%d" % number)

    def answered(self, answer: bytes) -> int:
        """Return which call this answers."""
        number = answer[self.number]
        if number != answer[self.echo] or not answer.startswith(self.answer):
            raise UnexpectedFrame(repr(answer))
        return int(number)


class BinaryCodec(Codec):
    """The same with identifiers of four bytes instead of digits; ID stands for them."""

    def say_call(self, number: int) -> bytes:
        """Return a call."""
        return self.call.replace(b"NUMBER", b"%d" % number).replace(b"ID", number.to_bytes(4, "big"))

    def say_publish(self, number: int) -> bytes:
        """Return a publication."""
        return self.publish.replace(b"NUMBER", b"%d" % number).replace(b"ID", number.to_bytes(4, "big"))

    def answered(self, answer: bytes) -> int:
        """Return which call this answers."""
        number = int.from_bytes(answer[self.number], "big")
        if number != int(answer[self.echo]) or not answer.startswith(self.answer):
            raise UnexpectedFrame(repr(answer))
        return number


def _lrpm_reply(call: bytes) -> bytes:
    end = call.index(b",", 4)
    body = end + len(b',"bench.echo",')
    return b"[41,%b,%b,{}]" % (call[4:end], call[body : body + SIZE])


def _cbor_reply(call: bytes) -> bytes:
    # Before the method, a text of 10 bytes, stands the identifier, which has any width.
    end = call.index(b"\x6abench.echo", 3)
    body = end + 11
    return b"\x84\x18\x29%b%b\xa0" % (call[3:end], call[body : body + SIZE])


RELAY: Final = Codec(
    opening=(),
    offer=Handshake(b'[0,0,"bench.echo",null]', b"[0,0,"),
    call=b'[1,NUMBER,"bench.echo",%b]' % BODY,
    reply=lambda call: b'[2,%b,"",%b]' % (call[3 : call.index(b",", 3)], call[-SIZE - 1 : -1]),
    answer=b"[2,",
    number=slice(3, 10),
    echo=slice(20, 27),
    follow=Handshake(b'[3,0,"bench.news",null]', b"[3,0,"),
    publish=b'[4,NUMBER,"bench.news",%b]' % BODY,
)

# What is heard from nats-server is a message's line and its body, without the line end behind it.
NATS: Final = Codec(
    opening=(
        Handshake(b"", b"INFO"),
        Handshake(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB _INBOX.b.* 1\r\nPING\r\n', b"PONG"),
    ),
    offer=Handshake(b"UNSUB 1\r\nSUB bench.echo 2\r\nPING\r\n", b"PONG"),
    call=b"PUB bench.echo _INBOX.b.NUMBER 100\r\n%b\r\n" % BODY,
    reply=lambda call: b"PUB %b 100\r\n%b\r\n" % (call[17:33], call[-SIZE:]),
    answer=b"MSG _INBOX.b.",
    number=slice(13, 20),
    echo=slice(34, 41),
    follow=Handshake(b"UNSUB 1\r\nSUB bench.news 3\r\nPING\r\n", b"PONG"),
    publish=b"PUB bench.news 100\r\n%b\r\n" % BODY,
    is_nats=True,
)

# Answers of Crossbar tell about the callee before the body, so that is found from the end.
WAMP_JSON: Final = Codec(
    opening=(Handshake(b'[1,"bench",{"roles":{"caller":{},"callee":{},"publisher":{},"subscriber":{}}}]', b"[2,"),),
    offer=Handshake(b'[64,1,{},"bench.echo"]', b"[65,1,"),
    call=b'[48,NUMBER,{},"bench.echo",[%b]]' % BODY,
    reply=lambda call: b"[70,%b,{},%b]" % (call[4 : call.index(b",", 4)], call[-SIZE - 3 : -1]),
    answer=b"[50,",
    number=slice(4, 11),
    echo=slice(-SIZE + 4, -SIZE + 11),
    follow=Handshake(b'[32,1,{},"bench.news"]', b"[33,1,"),
    publish=b'[16,NUMBER,{},"bench.news",[%b]]' % BODY,
    path="/ws",
    subprotocol="wamp.2.json",
)

LRPM_JSON: Final = Codec(
    opening=(Handshake(b"[2,null,{}]", b"[2,"),),
    offer=Handshake(b'[40,256,"hub.register",{"name":"bench.echo"},{}]', b"[41,256,"),
    call=b'[40,NUMBER,"bench.echo",%b,{}]' % BODY,
    reply=_lrpm_reply,
    answer=b"[41,",
    number=slice(4, 11),
    echo=slice(18, 25),
    follow=Handshake(b'[63,256,"bench.news",{}]', b"[64,256,"),
    publish=b'[61,NUMBER,"bench.news",%b,{}]' % BODY,
    path="/lrpm",
)

LRPM_CBOR: Final = BinaryCodec(
    opening=(Handshake(cbor2.dumps([2, None, {}]), b"\x83\x02"),),
    offer=Handshake(cbor2.dumps([40, 256, "hub.register", {"name": "bench.echo"}, {}]), b"\x84\x18\x29\x19\x01\x00"),
    call=b"\x85\x18\x28\x1aID\x6abench.echo%b\xa0" % _CBOR_BODY,
    reply=_cbor_reply,
    answer=b"\x84\x18\x29\x1a",
    number=slice(4, 8),
    echo=slice(13, 20),
    follow=Handshake(cbor2.dumps([63, 256, "bench.news", {}]), b"\x84\x18\x40\x19\x01\x00"),
    publish=b"\x85\x18\x3d\x1aID\x6abench.news%b\xa0" % _CBOR_BODY,
    path="/lrpm",
    is_text=False,
)

UMQ: Final = Codec(
    opening=(Handshake(b"H1.0.0\n", b"W"),),
    offer=Handshake(b'M1\nhub:register\n{"name":"bench:echo"}', b"R1\n"),
    call=b"MNUMBER\nbench:echo\n%b" % BODY,
    reply=lambda call: b"R%b\n%b" % (call[1 : call.index(b"\n")], call[-SIZE:]),
    answer=b"R",
    number=slice(1, 8),
    echo=slice(15, 22),
    follow=Handshake(b'M1\nhub:subscribe\n{"topic":"bench.news","id":"news"}', b"R1\n"),
    publish=b'MNUMBER\nhub:publish\n{"topic":"bench.news","data":%b}' % BODY,
    path="/umq",
)

# Its identifiers are in base 36, where decimal digits are digits too.
UMQ36: Final = Codec(
    opening=(Handshake(b"H1:", b"W"),),
    offer=Handshake(b'C1:["hub.register",{"name":"bench.echo"}]', b"R1:"),
    call=b'CNUMBER:["bench.echo",%b]' % BODY,
    reply=lambda call: b"R%b:%b" % (call[1 : call.index(b":")], call[-SIZE - 1 : -1]),
    answer=b"R",
    number=slice(1, 8),
    echo=slice(15, 22),
    follow=Handshake(b'C1:["hub.subscribe",{"topic":"bench.news","id":"N"}]', b"R1:"),
    publish=b'CNUMBER:["hub.publish",{"topic":"bench.news","data":%b}]' % BODY,
    path="/umq36",
)
