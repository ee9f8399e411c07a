import random
import time

import numpy as np
import pyarrow as pa
import pytest

from fiveways.journal.redaction import Redactor
from fiveways.pipeline.decode import nq_rows
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.messages import SystemNote
from fiveways.wire import cbor
from fiveways.wire.packet import Packet
from tests.unit.journal.secret_forms import INNOCENT, SECRET, WITH_SECRET

SAID = [
    # (protocol, frame, what of it is kept)
    ("umq", b"H1.0.0\ngeheim", b"H1.0.0\n***"),
    ("umq", b"A1\nH1.0.0\ngeheim", b"A1\nH1.0.0\n***"),
    ("umq", b"H1.0.0\n", b"H1.0.0\n"),
    ("umq", b"W1.0.0\ngeheim\ngeheim", b"W1.0.0\n***"),
    ("umq", b"Stoken\ngeheim", b"Stoken\n***"),
    ("umq", b"Scolour\ntoken", b"Scolour\ntoken"),
    ("umq", b'M1\nhub:set\n{"name":"token","value":"geheim"}', b'M1\nhub:set\n{"name":"token","value":"***"}'),
    ("umq", b"M1\nhub:set\ntoken\ngeheim", b"M1\nhub:set\n***"),
    ("umq", b"R1\nthe token is geheim", b"R1\n***"),
    ("umq36", b"H1:geheim", b"H1:***"),
    ("umq36", b"A1:H1:geheim", b"A1:H1:***"),
    ("umq36", b"S:token=geheim", b"S:token=***"),
    ("umq36", b"S:colour=token", b"S:colour=token"),
    ("umq36", b'C1:["login",{"password":"geheim"}]', b'C1:["login",{"password":"***"}]'),
    ("lrpm-json", b'[2,{"token":"geheim"},{}]', b'[2,"***",{}]'),
    ("lrpm-json", b' [ 2, "geheim", {} ]', b'[2,"***",{}]'),
    ("lrpm-json", b'[4,{"name":"a","hmac":"geheim"},{}]', b'[4,"***",{}]'),
    ("lrpm-json", b'[40,1,"hub.set",["token","geheim"],{}]', b'[40,1,"hub.set",["token","***"],{}]'),
    ("lrpm-json", b'[40,1,"a.b",{"x":{"secret":["geheim"]}},{}]', b'[40,1,"a.b",{"x":{"secret":"***"}},{}]'),
    ("lrpm-cbor", cbor.write([2, {"token": "geheim"}, {}]), cbor.write([2, "***", {}])),
    ("lrpm-cbor", cbor.write([40, 1, "a", {"token": "geheim"}, {}]), cbor.write([40, 1, "a", {"token": "***"}, {}])),
    ("nq", b'{"t":"a","r":"1","d":{"authorization":"geheim"}}', b'{"t":"a","r":"1","d":{"authorization":"***"}}'),
    (
        "nq",
        b'[{"e":{"type":"sys","note":"peer","args":["geheim","geheim"]}}]',
        b'[{"e":{"type":"sys","note":"peer","args":["***","***"]}}]',
    ),
    ("nq", b'{"t":"a","r":"1","d":{"name":"pin","args":"x"}}', b'{"t":"a","r":"1","d":{"name":"pin","args":"x"}}'),
    ("nq", b'{"t":"a","d":{"name":"token","args":{"x":1}}}', b'{"t":"a","d":{"name":"token","args":"***"}}'),
    # What cannot be taken apart is not kept at all.
    ("lrpm-json", b'[40,1,"a",{"token":"geheim"', None),
    ("lrpm-cbor", b"\x85\x18\x28token geheim", None),
    ("mqtt-rpc", b"\x0a\x05token\x12\x06geheim", None),
    ("umq", b"\xfftoken geheim", None),
]


REDACTION = Redactor()


def redacted(*frames: tuple[str, bytes | None], redaction: Redactor = REDACTION) -> list[bytes | None]:
    """Redact frames as the writer does, all in one batch."""
    protocols = sorted({protocol for protocol, _ in frames})
    codes = np.array([protocols.index(protocol) for protocol, _ in frames])
    unrouted = np.ones(len(frames), bool)
    column, _ = redaction.apply(pa.array([said for _, said in frames], pa.binary()), protocols, codes, unrouted)
    return list(column.to_pylist())


@pytest.mark.parametrize(("protocol", "said", "kept"), SAID)
def test_what_is_secret_is_not_kept(protocol: str, said: bytes, kept: bytes | None) -> None:
    assert redacted((protocol, said)) == [kept]


@pytest.mark.parametrize(("protocol", "said"), WITH_SECRET)
def test_no_form_of_a_secret_is_recorded(protocol: str, said: bytes) -> None:
    (kept,) = redacted((protocol, said))
    assert SECRET.encode() not in (kept or b"").lower()


@pytest.mark.parametrize(("protocol", "said"), INNOCENT)
def test_innocent_frame_is_recorded_unchanged(protocol: str, said: bytes) -> None:
    assert redacted((protocol, said)) == [said]


def test_frames_of_one_batch_are_redacted_as_each_alone() -> None:
    frames = [frame for pair in zip(WITH_SECRET, INNOCENT * 99, strict=False) for frame in pair]
    assert redacted(*frames) == [kept for frame in frames for kept in redacted(frame)]


def test_redacted_frame_is_still_one_of_its_protocol() -> None:
    (kept,) = redacted(("lrpm-json", b'[40,1,"a",{"x":{"api_key":1,"y":"token=geheim&z=1"}},{}]'))
    assert kept == b'[40,1,"a",{"x":{"api_key":"***","y":"token=***&z=1"}},{}]'


def test_malformed_frame_leaves_its_size_and_digest_only() -> None:
    said = b'[40,1,"a",{"x":"geheim'
    found = [Redactor().redact("lrpm-json", said) for _ in range(2)]
    assert [each.payload for each in found] == [None, None]
    assert all(each.reason.startswith(f"malformed: {len(said)} bytes, digest ") for each in found)
    assert found[0].reason != found[1].reason  # keyed: nobody can guess a short secret from it
    assert REDACTION.redact("lrpm-json", said) == REDACTION.redact("lrpm-json", said)


def test_damaged_frame_is_redacted_or_left_out() -> None:
    chance = random.Random(5)
    frames = WITH_SECRET + INNOCENT
    for _ in range(3000):
        (protocol, said), (_, other) = chance.choices(frames, k=2)
        at, end = sorted(chance.choices(range(len(said) + 1), k=2))
        damaged = said[:at] + other[: chance.randrange(30)] + said[end:]
        found = REDACTION.redact(protocol, damaged)
        assert found.reason or isinstance(found.payload, bytes)
    assert REDACTION.redact("lrpm-json", b"[[2],3]").reason  # what is no number cannot be looked up as a kind


@pytest.mark.parametrize("pattern", [r"sk_live_\w+", r"(?<=no: )sk_live_\w+"])  # RE2 does not know the second
def test_operator_adds_patterns_of_secrets_in_texts(pattern: str) -> None:
    frame = ("nq", b'{"t":"a","r":"1","d":["no: sk_live_geheim."]}')
    assert redacted(frame) == [frame[1]]
    kept = redacted(frame, redaction=Redactor(patterns=[pattern]))
    assert kept == [b'{"t":"a","r":"1","d":["no: ***."]}']


def test_time_of_a_closer_look_grows_with_the_text_only() -> None:
    pieces = [
        "a=b&",
        "eyJ",
        "-----BEGIN PRIVATE KEY-----",
        "a",
        "token=",
        "://a:",
        "basic ",
        "<a ",
        "--a ",
        'token:"',
        "\\",
    ]

    def spent(text: str) -> float:
        begun = time.process_time()
        REDACTION.redact("umq", f"R1\n{text}".encode())
        return time.process_time() - begun

    for piece in pieces:
        short, long = (min(spent(piece * (size // len(piece))) for _ in range(3)) for size in (10_000, 160_000))
        assert long < 64 * short + 0.05, piece  # 16 times as long; quadratic would be 256 times


def test_the_note_by_which_a_peer_may_come_back_can_still_be_read() -> None:
    said = b'{"e":{"type":"sys","fatal":false,"note":"peer","args":["geheim","h-"]}}'
    kept = REDACTION.redact("nq", said).payload
    assert kept is not None
    (message,) = nq_rows.read(Packet(kept))
    assert message == SystemNote(ErrorObject("sys", False, note="peer", args=("***", "***")))


PLAIN = [
    ("umq", b"M1\nadd\n[1,2]"),
    ("umq36", b'C1:["add",1]'),
    ("lrpm-json", b'[40,1,"add",[1,2],{}]'),
    ("lrpm-json", b'[41,1,"x",{}]'),
    ("lrpm-cbor", cbor.write([41, 1, "x", {}])),
    ("nq", b'{"t":"add","r":"1","d":[1]}'),
    ("mqtt-rpc", b"\x0a\x03add"),
    ("attachment", b"Have the token"),
    ("attachment", b"H\xff"),
]


@pytest.mark.parametrize(("protocol", "said"), PLAIN)
def test_what_is_not_secret_is_kept_as_it_is(protocol: str, said: bytes) -> None:
    assert redacted((protocol, said)) == [said]


def test_each_of_many_is_treated_by_its_own_protocol() -> None:
    said = [b"H1\ngeheim", b'[40,1,"a",[],{}]', None, b"H1:geheim", b"", b'[2,"geheim",{}]']
    protocols = ["umq", "lrpm-json", "umq", "umq36", "lrpm-json", "lrpm-json"]
    kept = [b"H1\n***", b'[40,1,"a",[],{}]', None, b"H1:***", b"", b'[2,"***",{}]']
    assert redacted(*zip(protocols, said, strict=True)) == kept


def test_names_can_be_chosen() -> None:
    frame = ("nq", b'{"t":"a","r":"1","d":{"PIN":1,"token":2}}')
    kept = b'{"t":"a","r":"1","d":{"PIN":"***","token":2}}'
    assert redacted(frame, redaction=Redactor(["pin"])) == [kept]
