import pyarrow as pa
import pytest

from fiveways.journal.redaction import Redaction
from fiveways.pipeline.decode import nq_rows
from fiveways.protocols.nq.errors import Err
from fiveways.protocols.nq.messages import SystemNote
from fiveways.wire import cbor
from fiveways.wire.packet import Packet

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


@pytest.mark.parametrize(("protocol", "said", "kept"), SAID)
def test_what_is_secret_is_not_kept(protocol: str, said: bytes, kept: bytes | None) -> None:
    assert Redaction().apply(pa.array([said]), [protocol], pa.array([0]).to_numpy()).to_pylist() == [kept]


def test_the_note_by_which_a_peer_may_come_back_can_still_be_read() -> None:
    said = b'{"e":{"type":"sys","fatal":false,"note":"peer","args":["geheim","h-"]}}'
    kept = Redaction().redacted("nq", said)
    assert kept is not None
    (message,) = nq_rows.read(Packet(kept))
    assert message == SystemNote(Err("sys", False, note="peer", args=("***", "***")))


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
    assert Redaction().apply(pa.array([said]), [protocol], pa.array([0]).to_numpy()).to_pylist() == [said]


def test_each_of_many_is_treated_by_its_own_protocol() -> None:
    said = [b"H1\ngeheim", b'[40,1,"a",[],{}]', None, b"H1:geheim", b"", b'[2,"geheim",{}]']
    protocols, codes = ["umq", "lrpm-json", "umq36"], pa.array([0, 1, 0, 2, 1, 1]).to_numpy()
    kept = [b"H1\n***", b'[40,1,"a",[],{}]', None, b"H1:***", b"", b'[2,"***",{}]']
    assert Redaction().apply(pa.array(said, pa.binary()), protocols, codes).to_pylist() == kept


def test_names_can_be_chosen() -> None:
    column, codes = pa.array([b'{"t":"a","r":"1","d":{"pin":1,"token":2}}']), pa.array([0]).to_numpy()
    assert Redaction(["pin"]).apply(column, ["nq"], codes).to_pylist() == [
        b'{"t":"a","r":"1","d":{"pin":"***","token":2}}'
    ]
