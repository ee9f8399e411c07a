"""Decoding of single frames, with expected rows written by hand."""

from typing import Any

import pytest

from fiveways.pipeline.decode.message_row import STATUS_OF_REASON
from tests.support.sample_records import assert_paths_agree, row

IN, OUT = "in", "out"
OK = {"status": "result"}
RAISED = {"status": "failed", "reason": "raised"}


def failure(reason: str, code: str, status: str = "not_executed") -> dict[str, Any]:
    return {"status": status, "reason": reason, "code": code}


# direction, frame, kind, id, target, and all other values that are not null
UMQ = [
    (IN, b"H1.0.0\n***", "hello", None, None, {"body_size": 3}),
    (OUT, b"W1.0.0\n***", "welcome", None, None, {"body_size": 3}),
    (
        IN,
        b"M7\nAccount:getBalance\n[1]",
        "call",
        "7",
        "Account:getBalance",
        {"method": "account.get_balance", "body_size": 3},
    ),
    (IN, b"A2\nM7\nadd\nx", "call", "7", "add", {"method": "add", "body_size": 1}),
    (IN, b"M7\na:*\nx", "call", "7", "a:*", {"body_size": 1}),
    (
        IN,
        b'M7\nhub:publish\n{"topic":"a.B","data":1}',
        "call",
        "7",
        "hub:publish",
        {"method": "hub.publish", "topic": "a.__42", "body_size": 24},
    ),
    (
        IN,
        b"M7\nhub:publish\na.b\nx",
        "call",
        "7",
        "hub:publish",
        {"method": "hub.publish", "topic": "a.b", "body_size": 5},
    ),
    (
        IN,
        b"M7\nhub:subscribe\na.*\nt1",
        "call",
        "7",
        "hub:subscribe",
        {"method": "hub.subscribe", "topic": "a.*", "body_size": 6},
    ),
    (IN, b"M7\nhub:close\na.b", "call", "7", "hub:close", {"method": "hub.close", "topic": "a.b", "body_size": 3}),
    (IN, b"M7\nhub:publish\n", "call", "7", "hub:publish", {"method": "hub.publish", "body_size": 0}),
    (IN, b"M7\nhub:ping\n", "call", "7", "hub:ping", {"method": "hub.ping", "body_size": 0}),
    (OUT, b"C8\ntoken\nx", "callback", "8", "token", {"body_size": 1}),
    (IN, b"M8\ncallback:token\nx", "callback", "8", "callback:token", {"body_size": 1}),
    (OUT, b"R7\nyes", "result", "7", None, OK | {"body_size": 3}),
    (OUT, b"!7\n7 none", "failure", "7", None, failure("no_such_method", "7") | {"body_size": 6}),
    (OUT, b"!7\n99 what", "failure", "7", None, failure("unavailable", "99") | {"body_size": 7}),
    (OUT, b"E7\n9 late", "failure", "7", None, failure("timeout", "9", "timeout") | {"body_size": 6}),
    (OUT, b"E7\n10 gone", "failure", "7", None, failure("lost", "10", "lost") | {"body_size": 7}),
    (OUT, b"E7\n16 no", "failure", "7", None, failure("cancelled", "16", "cancelled") | {"body_size": 5}),
    (OUT, b"E7\n7 dwarfs", "failure", "7", None, RAISED | {"body_size": 8}),
    (IN, b"E7\n9 late", "failure", "7", None, RAISED | {"body_size": 6}),
    (IN, b"!7\n14 full", "failure", "7", None, failure("overloaded", "14") | {"body_size": 7}),
    (OUT, b"E\n5 Unsupported version", "error", None, None, {"code": "5", "body_size": 21}),
    (OUT, b"Ttid\nnews", "event", None, "tid", {"body_size": 4}),
    (OUT, b"Ztid", "topic_closed", None, "tid", {"body_size": 0}),
    (IN, b"Utid", "unsubscribe", None, "tid", {"body_size": 0}),
    (IN, b"Stoken\n***", "set", None, "token", {"body_size": 3}),
    (IN, b"Xtoken", "unset", None, "token", {"body_size": 0}),
    (IN, b"?9\nAccount:", "discover", "9", "Account:", {"body_size": 8}),
    (IN, b"-\nlost", "attachment", None, None, {"status": "failed", "body_size": 4}),
]
UMQ36 = [
    (IN, b"H1:***", "hello", None, None, {"body_size": 3}),
    (
        IN,
        b'C1AZ:["Account.getBalance",1, 2]',
        "call",
        "1AZ",
        "Account.getBalance",
        {"method": "account.get_balance", "body_size": 4},
    ),
    (IN, b'C01:["m"]', "call", "1", "m", {"method": "m", "body_size": 0}),
    (IN, b"C:How are you?", "call", "0", None, {"body_size": 12}),
    (IN, b'C1:["m",1e999]', "call", "1", None, {"body_size": 11}),
    (
        IN,
        b'C1:["hub.publish",{"topic":"a"}]',
        "call",
        "1",
        "hub.publish",
        {"method": "hub.publish", "topic": "a", "body_size": 13},
    ),
    (IN, b"B63:4454:here", "callback", "63", "4454", {"body_size": 4}),
    (OUT, b"E1:8 away", "failure", "1", None, failure("unavailable", "8") | {"body_size": 6}),
    (IN, b"E1:8 away", "failure", "1", None, RAISED | {"body_size": 6}),
    (IN, b"!1:6 Not RPC server", "failure", "1", None, failure("unavailable", "6") | {"body_size": 16}),
    (OUT, b"T9A: x", "event", None, "9A", {"body_size": 2}),
    (OUT, b"D9A:", "topic_closed", None, "9A", {"body_size": 0}),
    (IN, b"U9A:", "unsubscribe", None, "9A", {"body_size": 0}),
    (IN, b"S:key=value", "set", None, "key", {"body_size": 5}),
    (IN, b"X:key", "unset", None, "key", {"body_size": 0}),
    (OUT, b"F0:3 Protocol error", "error", None, None, {"code": "3", "body_size": 16}),
]
LRPM = [
    (IN, b'[2,"***",{}]', "hello", None, None, {"body_size": 5}),
    (OUT, b'[2,"***",{}]', "welcome", None, None, {"body_size": 5}),
    (OUT, b'[3,"***",{}]', "challenge", None, None, {"body_size": 5}),
    (IN, b'[4,"***",{}]', "proof", None, None, {"body_size": 5}),
    (IN, b'["CALL", 13, "a.get_b", "x", {}]', "call", "13", "a.get_b", {"method": "a.get_b", "body_size": 3}),
    (IN, b'[40,13,"A.b",1,{"timeout":5}]', "call", "13", "A.b", {"body_size": 1}),
    (IN, b'[40,13,"callback.tok",1,{}]', "callback", "13", "callback.tok", {"body_size": 1}),
    (
        IN,
        b'[40,1,"hub.subscribe",{"topic":"a.*"},{}]',
        "call",
        "1",
        "hub.subscribe",
        {"method": "hub.subscribe", "topic": "a.*", "body_size": 15},
    ),
    (OUT, b"[41,13,[1],{}]", "result", "13", None, OK | {"body_size": 3}),
    (OUT, b'[41,13,1,{"progress":true}]', "progress", "13", None, {"body_size": 1}),
    (OUT, b'[41,13,1,{"part":1}]', "part", "13", None, {"body_size": 1}),
    (OUT, b'[41,13,1,{"part":2,"last":true}]', "result", "13", None, OK | {"body_size": 1}),
    (
        OUT,
        b'[20,40,13,"hub.err.denied","no",{}]',
        "failure",
        "13",
        None,
        failure("denied", "hub.err.denied") | {"body_size": 4},
    ),
    (
        OUT,
        b'[20,40,13,"hub.err.new",null,{}]',
        "failure",
        "13",
        None,
        failure("lost", "hub.err.new", "lost") | {"body_size": 4},
    ),
    (
        IN,
        b'[20,40,13,"hub.err.denied","no",{}]',
        "failure",
        "13",
        None,
        RAISED | {"code": "hub.err.denied", "body_size": 4},
    ),
    (
        IN,
        b'[20,40,13,".err.cancelled",null,{}]',
        "failure",
        "13",
        None,
        failure("cancelled", ".err.cancelled", "cancelled") | {"body_size": 4},
    ),
    (IN, b"[21,13,{}]", "cancel", "13", None, {"body_size": 0}),
    (IN, b'[61,14,"a.b__2dc",1,{}]', "publish", "14", "a.b__2dc", {"topic": "a.b__2dc", "body_size": 1}),
    (OUT, b"[62,14,900,{}]", "result", "14", "900", OK | {"body_size": 0}),
    (IN, b'[63,15,"a.*",{}]', "subscribe", "15", "a.*", {"topic": "a.*", "body_size": 0}),
    (OUT, b"[64,15,300,{}]", "result", "15", "300", OK | {"body_size": 0}),
    (OUT, b'[60,900,300,"x",{"topic":"a.b"}]', "event", None, "300", {"topic": "a.b", "body_size": 3}),
    (OUT, b'[60,0,300,null,{"closed":true}]', "topic_closed", None, "300", {"body_size": 4}),
    (IN, b"[65,16,300,{}]", "unsubscribe", "16", "300", {"body_size": 0}),
    (OUT, b"[66,16,{}]", "result", "16", None, OK | {"body_size": 0}),
    (OUT, b'[1,".bye.normal",{}]', "goodbye", None, None, {"code": ".bye.normal", "body_size": 0}),
    (IN, b"[200,1,2]", "other", None, "200", {"body_size": 2}),
]
NQ = [
    (
        OUT,
        b'{"e":{"type":"sys","note":"peer","args":["***"]}}',
        "welcome",
        None,
        None,
        {"code": "peer", "body_size": 0},
    ),
    (IN, b'{"e":{"type":"sys","note":"hello"}}', "hello", None, None, {"code": "hello", "body_size": 0}),
    (OUT, b'{"e":{"type":"sys","fatal":true,"note":"bye"}}', "goodbye", None, None, {"code": "bye", "body_size": 0}),
    (
        OUT,
        b'{"e":{"type":"local","fatal":true,"err":"malformed"}}',
        "error",
        None,
        None,
        {"code": "malformed", "body_size": 0},
    ),
    (
        IN,
        b'{"t":"account-get_balance","r":12,"d":[1]}',
        "call",
        "12",
        "account-get_balance",
        {"method": "account.get_balance", "body_size": 3},
    ),
    (IN, b'{"r":"x"}', "call", "x", None, {"body_size": 0}),
    (IN, b'{"t":"a","r":"x","d":1,"n":1}', "call", "x", "a", {"method": "a", "body_size": 1}),
    (IN, b'{"t":"a","r":"x","d":1,"n":2,"f":0}', "call_part", "x", "a", {"body_size": 1}),
    (IN, b'{"t":"callback-tok","r":"x","d":1}', "callback", "x", "callback-tok", {"body_size": 1}),
    (
        IN,
        b'{"t":"hub-publish","r":"x","d":{"topic":"A-b"}}',
        "call",
        "x",
        "hub-publish",
        {"method": "hub.publish", "topic": "__41.b", "body_size": 15},
    ),
    (OUT, b'{"t":"sub","r":"x","d":1,"topic":"A-b"}', "event", "x", "sub", {"topic": "__41.b", "body_size": 1}),
    (IN, b'{"t":"sub","r":"x","d":1,"topic":"A-b"}', "call", "x", "sub", {"method": "sub", "body_size": 1}),
    (OUT, b'{"t":"hub-closed","r":"x","d":{"id":"sub"}}', "topic_closed", "x", "hub-closed", {"body_size": 12}),
    (OUT, b'{"a":"b1","i":"x"}', "accepted", "x", "b1", {"body_size": 0}),
    (OUT, b'{"a":"b1","i":12,"d":{}}', "result", "12", "b1", OK | {"body_size": 2}),
    (OUT, b'{"a":"b1","i":"x","d":1,"n":1}', "part", "x", "b1", {"body_size": 1}),
    (OUT, b'{"a":"b1","i":"x","n":3,"f":0}', "result", "x", "b1", OK | {"body_size": 0}),
    (OUT, b'{"a":"b1","i":"x","e":{"type":"note","note":"half"}}', "progress", "x", "b1", {"body_size": 0}),
    (
        OUT,
        b'{"a":"b1","i":"x","e":{"type":"local","fatal":true,"err":"notarget"}}',
        "failure",
        "x",
        "b1",
        failure("no_such_method", "notarget") | {"body_size": 0},
    ),
    (
        OUT,
        b'{"a":"b1","i":"x","e":{"type":"local","fatal":true,"err":"expired"}}',
        "failure",
        "x",
        "b1",
        failure("timeout", "expired", "timeout") | {"body_size": 0},
    ),
    (
        OUT,
        b'{"a":"b1","i":"x","e":{"type":"app","fatal":true,"err":"E5"},"d":1}',
        "failure",
        "x",
        "b1",
        RAISED | {"code": "E5", "body_size": 1},
    ),
    (IN, b'{"i":"b1"}', "ack", None, "b1", {"body_size": 0}),
    (IN, b'{"i":"b1","o":5}', "ack", None, "b1", {"body_size": 0}),
    (OUT, b'{"a":"b1","i":"x","o":5}', "ack", "x", "b1", {"body_size": 0}),
    (IN, b'{"t":"a","i":"x","e":{"fatal":true}}', "cancel", "x", "a", {"body_size": 0}),
    (IN, b'{"i":"b1","e":{"fatal":true}}', "cancel", None, "b1", {"body_size": 0}),
    (IN, b'{"t":"a","p":"x"}', "other", "x", "a", {"body_size": 0}),
    (IN, b"[]", "ping", None, None, {"body_size": 0}),
]
MQTT = [
    (
        IN,
        "0807 1211 0a08 536179 48656c6c6f 1205 0a03 426f62 1801",
        "call",
        "7",
        "/svc/SayHello",
        {"method": "svc.say_hello", "body_size": 5},
    ),
    (IN, "0807 1801", "call_part", "7", None, {"body_size": 0}),
    (OUT, "0807 1206 1204 0a02 6869 2001", "result", "7", None, OK | {"body_size": 4}),
    (OUT, "0807 1206 1204 0a02 6869 2000", "part", "7", None, {"body_size": 4}),
    (OUT, "0807 1206 1204 0a02 6869", "result", "7", None, OK | {"body_size": 4}),
    (
        OUT,
        "0807 1a10 089403 120b 6875622e64656e696564 21 2001",
        "failure",
        "7",
        None,
        failure("lost", "404", "lost") | {"body_size": 0},
    ),
    (
        OUT,
        "0807 1a06 089403 1201 78 2001",
        "failure",
        "7",
        None,
        RAISED | {"code": "404", "body_size": 0},
    ),
    (
        OUT,
        "0807 1a0f 089303 120a 6875622e64656e696564 2001",
        "failure",
        "7",
        None,
        failure("denied", "403") | {"body_size": 0},
    ),
]
CASES = [
    *(("umq", *case) for case in UMQ),
    *(("umq36", *case) for case in UMQ36),
    *(("lrpm-json", *case) for case in LRPM),
    *(("nq", *case) for case in NQ),
    *(("mqtt-rpc", direction, bytes.fromhex(frame), *rest) for direction, frame, *rest in MQTT),
]
IGNORED_COLUMNS = (
    "run",
    "seq",
    "part",
    "at",
    "node",
    "session",
    "peer",
    "protocol",
    "transport",
    "direction",
    "channel",
    "size",
)


@pytest.mark.parametrize(("protocol", "direction", "frame", "kind", "identifier", "target", "more"), CASES)
def test_frame_decodes_to_expected_row(
    protocol: str,
    direction: str,
    frame: bytes,
    kind: str,
    identifier: str | None,
    target: str | None,
    more: dict[str, Any],
) -> None:
    decoded = assert_paths_agree([row(protocol, frame, direction, channel="/svc" if protocol == "mqtt-rpc" else None)])
    assert decoded.quarantine.to_pylist() == []
    (message,) = decoded.messages.to_pylist()
    expected = {"kind": kind, "id": identifier, "target": target} | more
    rest = {name: value for name, value in message.items() if name not in IGNORED_COLUMNS}
    assert rest == dict.fromkeys(rest) | expected


def test_every_failure_reason_has_a_status() -> None:
    assert set(STATUS_OF_REASON.values()) == {"not_executed", "timeout", "lost", "cancelled", "failed"}


def test_cbor_and_json_frames_decode_to_equal_rows() -> None:
    from fiveways.protocols.lrpm.messages import CBOR_CODEC, JSON_CODEC  # noqa: PLC0415  names clash with those above
    from fiveways.wire.limits import Limits  # noqa: PLC0415
    from fiveways.wire.packet import Packet  # noqa: PLC0415

    for direction, frame, *_ in LRPM:
        message = JSON_CODEC.decode(Packet(frame), Limits())
        cbor_frame = CBOR_CODEC.encode(message).payload
        json_row = assert_paths_agree([row("lrpm-json", frame, direction)]).messages.to_pylist()[0]
        cbor_row = assert_paths_agree([row("lrpm-cbor", cbor_frame, direction)]).messages.to_pylist()[0]
        for name in ("kind", "id", "target", "method", "topic", "status", "reason", "code"):
            assert cbor_row[name] == json_row[name], (frame, name)
