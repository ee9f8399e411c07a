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

CASES = [
    # (protocol, frame, recorded frame)
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
    # Frames that cannot be parsed are omitted.
    ("lrpm-json", b'[40,1,"a",{"token":"geheim"', None),
    ("lrpm-cbor", b"\x85\x18\x28token geheim", None),
    ("mqtt-rpc", b"\x0a\x05token\x12\x06geheim", None),
    ("umq", b"\xfftoken geheim", None),
]


REDACTOR = Redactor()


def redacted(*frames: tuple[str, bytes | None], redactor: Redactor = REDACTOR) -> list[bytes | None]:
    """Redact frames as the writer does, all in one batch."""
    protocols = sorted({protocol for protocol, _ in frames})
    codes = np.array([protocols.index(protocol) for protocol, _ in frames])
    unrouted = np.ones(len(frames), bool)
    column, _ = redactor.apply(pa.array([frame for _, frame in frames], pa.binary()), protocols, codes, unrouted)
    return list(column.to_pylist())


@pytest.mark.parametrize(("protocol", "frame", "recorded"), CASES)
def test_secret_is_not_recorded(protocol: str, frame: bytes, recorded: bytes | None) -> None:
    assert redacted((protocol, frame)) == [recorded]


@pytest.mark.parametrize(("protocol", "frame"), WITH_SECRET)
def test_no_form_of_a_secret_is_recorded(protocol: str, frame: bytes) -> None:
    (recorded,) = redacted((protocol, frame))
    assert SECRET.encode() not in (recorded or b"").lower()


@pytest.mark.parametrize(("protocol", "frame"), INNOCENT)
def test_innocent_frame_is_recorded_unchanged(protocol: str, frame: bytes) -> None:
    assert redacted((protocol, frame)) == [frame]


def test_batch_is_redacted_like_single_frames() -> None:
    frames = [frame for pair in zip(WITH_SECRET, INNOCENT * 99, strict=False) for frame in pair]
    assert redacted(*frames) == [recorded for frame in frames for recorded in redacted(frame)]


def test_redacted_frame_is_valid_in_its_protocol() -> None:
    (recorded,) = redacted(("lrpm-json", b'[40,1,"a",{"x":{"api_key":1,"y":"token=geheim&z=1"}},{}]'))
    assert recorded == b'[40,1,"a",{"x":{"api_key":"***","y":"token=***&z=1"}},{}]'


def test_malformed_frame_is_recorded_as_size_and_digest() -> None:
    frame = b'[40,1,"a",{"x":"geheim'
    results = [Redactor().redact("lrpm-json", frame) for _ in range(2)]
    assert [result.payload for result in results] == [None, None]
    assert all(result.reason.startswith(f"malformed: {len(frame)} bytes, digest ") for result in results)
    assert results[0].reason != results[1].reason  # keyed: a short secret cannot be guessed from the digest
    assert REDACTOR.redact("lrpm-json", frame) == REDACTOR.redact("lrpm-json", frame)


def test_damaged_frame_is_redacted_or_omitted() -> None:
    random_source = random.Random(5)
    frames = WITH_SECRET + INNOCENT
    for _ in range(3000):
        (protocol, frame), (_, other) = random_source.choices(frames, k=2)
        at, end = sorted(random_source.choices(range(len(frame) + 1), k=2))
        damaged = frame[:at] + other[: random_source.randrange(30)] + frame[end:]
        result = REDACTOR.redact(protocol, damaged)
        assert result.reason or isinstance(result.payload, bytes)
    assert REDACTOR.redact("lrpm-json", b"[[2],3]").reason  # the kind is not a number


@pytest.mark.parametrize("pattern", [r"sk_live_\w+", r"(?<=no: )sk_live_\w+"])  # RE2 does not support the second
def test_operator_adds_patterns_of_secrets_in_texts(pattern: str) -> None:
    frame = ("nq", b'{"t":"a","r":"1","d":["no: sk_live_geheim."]}')
    assert redacted(frame) == [frame[1]]
    recorded = redacted(frame, redactor=Redactor(patterns=[pattern]))
    assert recorded == [b'{"t":"a","r":"1","d":["no: ***."]}']


def test_redaction_time_is_linear() -> None:
    fragments = [
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

    def cpu_time(text: str) -> float:
        started_at = time.process_time()
        REDACTOR.redact("umq", f"R1\n{text}".encode())
        return time.process_time() - started_at

    for fragment in fragments:
        short, long = (
            min(cpu_time(fragment * (size // len(fragment))) for _ in range(3)) for size in (10_000, 160_000)
        )
        assert long < 64 * short + 0.05, fragment  # 16 times as long; quadratic would be 256 times


def test_redacted_peer_note_can_be_decoded() -> None:
    frame = b'{"e":{"type":"sys","fatal":false,"note":"peer","args":["geheim","h-"]}}'
    recorded = REDACTOR.redact("nq", frame).payload
    assert recorded is not None
    (message,) = nq_rows.read(Packet(recorded))
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


@pytest.mark.parametrize(("protocol", "frame"), PLAIN)
def test_frame_without_secret_is_recorded_unchanged(protocol: str, frame: bytes) -> None:
    assert redacted((protocol, frame)) == [frame]


def test_each_frame_of_a_batch_uses_its_own_protocol() -> None:
    frames = [b"H1\ngeheim", b'[40,1,"a",[],{}]', None, b"H1:geheim", b"", b'[2,"geheim",{}]']
    protocols = ["umq", "lrpm-json", "umq", "umq36", "lrpm-json", "lrpm-json"]
    recorded = [b"H1\n***", b'[40,1,"a",[],{}]', None, b"H1:***", b"", b'[2,"***",{}]']
    assert redacted(*zip(protocols, frames, strict=True)) == recorded


def test_secret_names_are_configurable() -> None:
    frame = ("nq", b'{"t":"a","r":"1","d":{"PIN":1,"token":2}}')
    recorded = b'{"t":"a","r":"1","d":{"PIN":"***","token":2}}'
    assert redacted(frame, redactor=Redactor(["pin"])) == [recorded]
