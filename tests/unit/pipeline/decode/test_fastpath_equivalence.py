"""The fast path decodes every frame like the general path, or leaves it to the general path."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.journal import reader
from fiveways.pipeline.decode.batches import decode_general, normalize_batch
from fiveways.pipeline.decode.decoded_columns import StringTables
from fiveways.pipeline.decode.fastpath import PreparedBatch, _scan_groups, decode_batch
from fiveways.protocols import registry
from tests.support import sample_records
from tests.support.sample_captures.capture import generate
from tests.support.sample_captures.options import Options
from tests.support.sample_records import assert_paths_agree, batch, row

PROTOCOLS = list(registry.PROTOCOLS)
TOKENS = [
    *(b'"', b"\\", b",", b"{", b"}", b"[", b"]", b":", b" ", b"\n", b"0", b"-", b"1e400", b"e999", b"\x00", b"\xff"),
    *("é".encode(), b"\xc3", b"\\u00e9", b"\\ud800", b"null", b'"d":1', b',"topic":"x"', b',"v":true', b",{}"),
    *(
        b"A1:",
        b"A1\n",
        b"\x18",
        b"\x80",
        b"\xa0",
        b"\xa1\x61\x61\x01",
        b"\x08\x05",
        b"\x12\x00",
        b"\x1a\x00",
        b"\x20\x01",
    ),
]
EDGE_CASES = {
    "umq": [
        *(b"M1\nhub:publish\na.b\nx", b"M1\ncallback:xyz\n1", b"M1\n\n", b"M1\nx", b"R1", b"R1\n", b"R\nx", b"T1\nx"),
        *(b"E1\n7 x", b"!1\n7 x", b"!1\n77 x", b"E1\n123456789 x", b"E1\n1234567890 x", b"E1\n9", b"E1\n9 ", b"E\n9 x"),
        *("Rčž\n☃".encode(), b"R\xff\nx", b"R1\n\xff", b"M" + b"9" * 255 + b"\na\n", b"M" + b"9" * 256 + b"\na\n"),
    ],
    "umq36": [
        *(b'C1:["m"]', b'C1:["m",1e999]', b'C1:["m", 1]', b'C1:["m",1 ]', b'C1:["m",1,2]', b'C1:["m",]', b'C1:["m"1]'),
        *(b'C1:["m\\u0041",1]', b'C1:["m\n",1]', b'C01:["m",1]', b'Ca:["m",1]', b"R0:x", b"R:x", b"E1:7 x", b"!1:6 N"),
        *(b"T1:u", b'C1:["hub.publish",{"topic":"a"}]', b'C1:["callback.x",1]', b"C1:[]", b"C1:", b'C1:["', b'C1:[""]'),
        *(b'C1:["m",' + b"[" * 130 + b"]" * 130 + b"]", b'C1:["m",' + b"9" * 4301 + b"]", b"RZZZZZZZZZZZZZ:x"),
    ],
    "lrpm-json": [
        *(
            b'[40,1,"a.b",{"x":{}},{"timeout":5}]',
            b"[41,1,2,{}]",
            b'[41,1,2,{"progress":true}]',
            b'[41,1,2,{"part":1}]',
        ),
        *(b'[41,1,2,{"part":1,"last":true}]', b'[60,1,2,{"t":1},{"topic":"a.b"}]', b'[60,1,2,3,{"closed":true}]'),
        *(
            b'[61,1,"a.b",1,{}]',
            b"[62,1,2,{}]",
            b'[40,1,"m",1,{"a":1,"a":2}]',
            b'[40,1,"m",1,{"a":1},{}]',
            b'[40,1,"m",{}]',
        ),
        *(
            b"[41,01,2,{}]",
            b"[41,1, 2,{}]",
            b"[41,1,2 ,{}]",
            b"[41,1,,{}]",
            b"[41,1,1 2,{}]",
            b"[41,1,1,2,{}]",
            b"[41,-1,2,{}]",
        ),
        *(
            b'[20,40,7,"app.err.x",null,{}]',
            b'[20,40,7,"",null,{}]',
            b'[20,40,7,"hub.err.new",null,{}]',
            b"[41,1,2,null]",
        ),
        *(
            b"[41,123456789012345678901,1,{}]",
            b"[41,9223372036854775808,1,{}]",
            b'[41,1,"\\ud800",{}]',
            b"[41,1,NaN,{}]",
        ),
        *(b'[41,1,"\x01",{}]', '[41,1,"é",{}]'.encode(), b'[41,1,"\xff",{}]', b"[41,1,[1,{}]", b'[40,1,"M\\n",1,{}]'),
        *(b"[41,1," + b"[" * 129 + b"]" * 129 + b",{}]", b"[41,1," + b"9" * 4301 + b",{}]", b"[41,1,1e309,{}]"),
    ],
    "nq": [
        *(b'{"t":"a","r":"1","d":1}', b'{"t":"a","r":"1","d":1,"v":true}', b'{"t":"a","r":"1","d":1,"d":2}'),
        *(b'{"t":"s","r":"9","d":{"a":1},"topic":"a-b"}', b'{"t":"s","r":"9","d":1,"topic":"a-b","d":55}'),
        *(
            b'{"t":"s\\u0041","r":"9","d":1,"topic":"a-b"}',
            b'{"t":"s\\/","r":"9","d":1}',
            b'{"a":"\\/","i":"1"}',
            b'{"i":"\\/"}',
        ),
        *(b'{"t":"s","r":"9","d":1,"topic":"a-b","t":"x","r":"y"}', b'{"t":"s","r":"9","d":",\\"topic\\":\\"x","n":0}'),
        *(b'{"a":"1","i":"2","e":{"type":"app","fatal":true,"err":"x"}}', b'{"a":"1","i":"2","e":{"fatal":false}}'),
        *(b'{"a":"1","i":"2","e":{"fatal":true},"a":"x","i":"y"}', b'{"a":"1","i":"2","e":{"type":"sys"}}'),
        *(
            b'{"a":"1","i":"2","e":{"fatal":true},"d":[1]}',
            b'{"a":"1","i":"2","d":1e400}',
            b'{"a":"1","i":"2"}',
            b'{"i":"q"}',
        ),
        *(b'{"t":"hub-closed","r":"1","d":{"id":"s"}}', b'{"t":"hub-publish","r":"1","d":{"topic":"a","data":1}}'),
        *(
            b'{"t":"a b","r":"1","d":1}',
            b'{"t":"","r":"1","d":1}',
            b'{"t":"a","r":"","d":1}',
            b'{"t":"a","r":"\\n","d":1}',
        ),
        *(
            b'{"t":"a","r":"1","d":}',
            b'{"t":"a","r":"1","d":1}}',
            b'{"t":"a","r":"1","d":1',
            b'{"t":"a","r":"\x02","d":1}',
        ),
        *(
            b'{"a":"1","i":"2","d":[1,\n2]}',
            b'{"a":"1","i":"2","d": 1}',
            b'[{"i":"q"},{"a":"1","i":["2","3"],"d":1}]',
            b"[]",
        ),
    ],
    "lrpm-cbor": [
        *(
            bytes.fromhex("8518280161 61f6a0"),
            bytes.fromhex("8418290181 81 81f6a0"),
            bytes.fromhex("841829 1b ffffffffffffffff f6 a0"),
        ),
        *(
            bytes.fromhex("841829 01 62c3a9 a0"),
            bytes.fromhex("841829 01 62c3ff a0"),
            bytes.fromhex("841829 01 7803616263 a0"),
        ),
        *(
            bytes.fromhex("841829 01 5f4101ff a0"),
            bytes.fromhex("841829 01 f820 a0"),
            bytes.fromhex("841829 01 f818 a0"),
        ),
        *(
            bytes.fromhex("86141828 01 6178 f6 a0"),
            bytes.fromhex("85183c 01 02 f6 a165746f7069636161"),
            bytes.fromhex("84183e0102a0"),
        ),
        *(
            bytes.fromhex("841829 01 a2616101616102 a0"),
            bytes.fromhex("841829 01 f6 a0a0"),
            bytes.fromhex("841829 01 98020102 a0"),
        ),
        bytes.fromhex("841829 01") + b"\x81" * 140 + b"\xf6\xa0",
    ],
    "mqtt-rpc": [
        *(
            bytes.fromhex("0807 1205 0a03 616263 1801"),
            bytes.fromhex("0807 1205 0a03 6162ff 1801"),
            bytes.fromhex("0807 1200 2001"),
        ),
        *(
            bytes.fromhex("0807 1a02 0801 2001"),
            bytes.fromhex("0807 1205 0a03 616263 1801 0808"),
            bytes.fromhex("08ffffffffffffffffff01 1200 2001"),
        ),
        *(
            bytes.fromhex("08ffffffffffffffffff02 1200 2001"),
            bytes.fromhex("0807 1205 0a03 616263 1801 1200"),
            bytes.fromhex("0807"),
        ),
        *(bytes.fromhex("0807 1206 0a03 616263 1801"), bytes.fromhex("0807 1205 0a03 616263 1800 28e807 3004"), b""),
    ],
}


def edge_case_rows() -> list[dict[str, Any]]:
    return [
        row(protocol, payload, direction, channel="/a" if protocol == "mqtt-rpc" else None)
        for protocol, payloads in EDGE_CASES.items()
        for payload in payloads
        for direction in ("in", "out")
    ]


def test_vectors_decode_equally_on_both_paths() -> None:
    decoded = assert_paths_agree(sample_records.vector_rows())
    assert len(decoded.messages) > 10_000
    assert len(decoded.quarantine) > 1_000


def test_shuffled_vectors_decode_equally_on_both_paths() -> None:
    rows = list(sample_records.vector_rows())
    Random(3).shuffle(rows)
    assert_paths_agree(rows[:6000])


def test_fuzzer_finds_decode_equally_on_both_paths() -> None:
    assert_paths_agree(sample_records.fuzzer_find_rows())


def test_edge_cases_decode_equally_on_both_paths() -> None:
    assert_paths_agree(edge_case_rows())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_edge_case_between_good_frames_decodes_equally(protocol: str) -> None:
    """An invalid body is not accepted in a group of valid ones, and does not affect them."""
    channel = "/a" if protocol == "mqtt-rpc" else None
    good = EDGE_CASES[protocol][0]
    for payload in EDGE_CASES[protocol]:
        assert_paths_agree([row(protocol, frame, "out", channel=channel) for frame in (good, payload, good, payload)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_frames_decode_equally_on_both_paths(protocol: str, data: st.DataObject) -> None:
    seeds = [packet.payload for packet in sample_records.packets(protocol)] + EDGE_CASES[protocol]
    rows = [damaged_row(protocol, seeds, data) for _ in range(data.draw(st.integers(1, 8)))]
    assert_paths_agree(rows)


def damaged_row(protocol: str, seeds: list[bytes], data: st.DataObject) -> dict[str, Any]:
    payload = data.draw(st.sampled_from(seeds))[:2000]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(payload)))
        match data.draw(st.integers(0, 3)):
            case 0:
                payload = payload[:at] + data.draw(st.sampled_from(TOKENS)) + payload[at:]
            case 1:
                payload = payload[:at] + payload[at + data.draw(st.integers(1, 4)) :]
            case 2:
                payload = payload[:at] + data.draw(st.binary(min_size=1, max_size=2)) + payload[at + 1 :]
            case _:
                payload = payload[:at] + data.draw(st.sampled_from(seeds))[:200]
    size = data.draw(st.sampled_from([len(payload), len(payload), len(payload), len(payload) + 9, None]))
    op = data.draw(st.sampled_from([None, "1", "p1", "-", "", "1 2", "p"]))
    direction = data.draw(st.sampled_from(["in", "out"]))
    kind = data.draw(
        st.sampled_from(["text", "binary"] + ["binary" if protocol in sample_records.BINARY else "text"] * 6)
    )
    channel = data.draw(st.sampled_from([None, "/a", "a/b", "x" * 256]))
    return row(protocol, payload, direction, kind=kind, size=size, op=op, channel=channel)


def test_many_damaged_frames_decode_equally_on_both_paths() -> None:
    random = Random(11)
    pool = sample_records.vector_rows() + 3 * edge_case_rows()
    rows = []
    for record in random.choices(pool, k=6000):
        payload = bytearray(record["payload"])
        for _ in range(random.choice([0, 1, 1, 2])):
            at = random.randrange(len(payload) + 1)
            payload[at : at + random.randrange(3)] = random.choice([*TOKENS, bytes([random.randrange(256)])])
        rows.append({**record, "payload": bytes(payload), "size": len(payload)})
    assert_paths_agree(rows)


@pytest.mark.parametrize("ops", [True, False])
def test_sample_capture_decodes_equally_on_both_paths(tmp_path: Path, ops: bool) -> None:
    generate(tmp_path / "journal", tmp_path / "truth", Options(frames=12_000, ops=ops))
    for path in sorted((tmp_path / "journal").glob("*.parquet")):
        for records in reader.read_batches(str(path)):
            general, fast = decode_general(records), decode_batch(records)
            for expected, decoded in zip(general, fast, strict=True):
                assert expected.to_pylist() == decoded.to_pylist()


COMMON = {
    "umq": [(b"M1\nadd:up\n[1]", b"R1\n2"), (b"M2\na\nx", b"!2\n7 no"), (b"M3\na\n", b"E3\nown"), (b"T4\nx", b"T5\ny")],
    "umq36": [(b'C1:["add",1,2]', b"R1:3"), (b'C2:["add"]', b"E2:7 no"), (b'C3:["add","a b"]', b"R3:x")],
    "lrpm-json": [
        (b'[40,1,"a.b",{"x":"y"},{}]', b"[41,1,[1,2.5,-3e2],{}]"),
        (b'[40,2,"a.b",null,{"timeout":100}]', b'[20,40,2,"hub.err.busy","no",{"retry_after":5}]'),
        (b'[61,3,"t.u",1,{}]', b"[62,3,9,{}]"),
        (b'[41,4,1,{"part":1}]', b'[60,9,5,"x",{"topic":"t.u"}]'),
    ],
    "nq": [
        (b'{"t":"a-b","r":"x1","d":{"a":"b"}}', b'{"a":"y1","i":"x1"}'),
        (b'{"i":"y1"}', b'{"a":"y1","i":"x1","d":[true,null]}'),
        (b'{"i":"y2"}', b'{"a":"y2","i":"x2","e":{"type":"local","fatal":true,"err":"busy"}}'),
        (b'{"i":"y3"}', b'{"t":"s","r":"x3","d":1,"topic":"a-b"}'),
    ],
    "lrpm-cbor": [
        (bytes.fromhex("8518280163612e62a1616102a0"), bytes.fromhex("841829 01 83 01 f90000 6161 a0")),
        (
            bytes.fromhex("851828 19 0100 6161 f6 a1 6774696d656f7574 19 03e8"),
            bytes.fromhex("86141828 19 0100 6178 f6 a0"),
        ),
    ],
    "mqtt-rpc": [
        (bytes.fromhex("0807 1205 0a03 616263 1801 28e807 3004"), bytes.fromhex("0807 1203 120161 2001")),
        (bytes.fromhex("0808 1208 0a03 616263 120178 1801"), bytes.fromhex("0808 1a05 08c803 12 00 2001")),
    ],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_common_frames_take_the_fast_path(protocol: str) -> None:
    """The comparisons with the general path would also pass if the fast path decoded nothing."""
    frames = [frame for pair in COMMON[protocol] for frame in zip(pair, ("in", "out"), strict=True)]
    rows = [row(protocol, payload, direction, channel="/a", op="5") for payload, direction in frames]
    assert_paths_agree(rows)
    ((_, decoded),) = _scan_groups(PreparedBatch(normalize_batch(batch(rows))), StringTables(), 1)
    assert [rows[index]["payload"] for index in np.flatnonzero(~decoded.is_decoded)] == []
