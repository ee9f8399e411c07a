"""Sample captures: the protocols decode their frames, and the expected tables agree with their records."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fiveways.errors import Reason, RemoteProtocolError
from fiveways.journal.schema import SCHEMA, split_ops
from fiveways.model import names
from fiveways.protocols.lrpm import bridge as lrpm_bridge
from fiveways.protocols.lrpm.messages import CBOR_CODEC, JSON_CODEC
from fiveways.protocols.mqtt_rpc import bridge as mqtt_bridge
from fiveways.protocols.mqtt_rpc import messages as mqtt
from fiveways.protocols.nq import bridge as nq_bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq import serializer
from fiveways.protocols.umq import bridge as umq_bridge
from fiveways.protocols.umq import messages as umq
from fiveways.protocols.umq36 import bridge as umq36_bridge
from fiveways.protocols.umq36 import messages as umq36
from fiveways.wire import base36 as wire36
from fiveways.wire import cbor
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.sample_captures.byte_columns import SMALLEST_36, base36, cbor_uint, varint
from tests.support.sample_captures.capture import generate
from tests.support.sample_captures.options import ENCODINGS, TEXTS, Options
from tests.support.sample_captures.vocabulary import FAILURES, METHODS, mqtt_tag, wire_code

LIMITS: Final = Limits()
FRAMES: Final = 12_000
Rows = list[dict[str, object]]


def reencode_nq(packet: Packet) -> tuple[int, bytes]:
    """Return the number of messages in an NQ packet, and their encoding by the protocol's own code."""
    messages = nq.decode(packet, LIMITS)
    for message in messages:
        if isinstance(message, nq.Bad):
            raise RemoteProtocolError(message.fault, message.text, message.rule)
    written = b",".join(map(serializer.write, messages))
    return len(messages), written if packet.payload[:1] == b"{" else b"[%b]" % written


REENCODERS: Final[dict[str, Callable[[Packet], tuple[int, bytes]]]] = {
    "umq36": lambda packet: (1, umq36.encode(umq36.decode(packet, LIMITS)).payload),
    "umq": lambda packet: (1, umq.encode(umq.decode(packet, LIMITS)).payload),
    "lrpm-json": lambda packet: (1, JSON_CODEC.encode(JSON_CODEC.decode(packet, LIMITS)).payload),
    "lrpm-cbor": lambda packet: (1, CBOR_CODEC.encode(CBOR_CODEC.decode(packet, LIMITS)).payload),
    "mqtt-rpc": lambda packet: (1, mqtt.encode(mqtt.decode(packet, LIMITS)[0]).payload),
    "nq": reencode_nq,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sample")
    generate(directory / "journal", directory / "truth", Options(FRAMES, segment=5000, block=7000))
    return directory


@pytest.fixture(scope="module")
def records(folder: Path) -> pa.Table:
    return pa.concat_tables(map(pq.read_table, sorted((folder / "journal").glob("*.parquet"))))


@pytest.fixture(scope="module")
def frames(records: pa.Table) -> Rows:
    rows: Rows = records.to_pylist()
    # A publication over MQTT has no protocol frame.
    bridged = [row for row in rows if row["protocol"] == "mqtt-rpc" and str(row["op"] or "").startswith("p")]
    return [row for row in rows if row["kind"] in ("text", "binary") and row not in bridged]


def quarantined(folder: Path) -> set[int]:
    return set(pq.read_table(folder / "truth" / "quarantine.parquet")["seq"].to_pylist())


def test_segments_have_the_journal_schema(folder: Path, records: pa.Table) -> None:
    assert records.schema.equals(SCHEMA, check_metadata=True)
    assert records["seq"].to_pylist() == list(range(FRAMES))
    sizes = [pq.read_metadata(path).num_rows for path in sorted((folder / "journal").glob("*.parquet"))]
    assert sizes == [5000, 5000, 2000]


def test_protocols_decode_all_frames_except_quarantined_ones(folder: Path, frames: Rows) -> None:
    rejected, changed, equal = set(), Counter[str](), Counter[str]()
    for row in frames:
        payload, protocol = row["payload"], str(row["protocol"])
        if not isinstance(payload, bytes):
            rejected.add(row["seq"])
            continue
        try:
            count, written = REENCODERS[protocol](Packet(payload, row["kind"] == "text", str(row["channel"] or "")))
        except RemoteProtocolError:
            rejected.add(row["seq"])
            continue
        ops = split_ops(str(row["op"]) if row["op"] else None, count)
        assert len(ops) == count
        (equal if written == payload else changed)[protocol] += 1
    assert rejected == quarantined(folder)
    assert set(changed) == set(equal) == set(ENCODINGS)
    assert changed.total() < 0.03 * equal.total()


def test_equal_options_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    generate(tmp_path / "journal", tmp_path / "truth", Options(FRAMES, segment=5000, block=7000))
    for path in (folder / "journal").glob("*.parquet"):
        assert (tmp_path / "journal" / path.name).read_bytes() == path.read_bytes()


def test_different_seed_gives_different_capture(folder: Path, tmp_path: Path) -> None:
    generate(tmp_path / "journal", tmp_path / "truth", Options(FRAMES, 2, segment=5000, block=7000))
    name = "sample-000001.parquet"
    assert (tmp_path / "journal" / name).read_bytes() != (folder / "journal" / name).read_bytes()


def test_disorder_of_times_is_bounded(records: pa.Table) -> None:
    at = records["at"].to_numpy()
    behind = np.maximum.accumulate(at) - at
    assert 0 < behind.max() <= Options(1).disorder


def test_some_operations_span_segments(folder: Path) -> None:
    paths = sorted((folder / "journal").glob("*.parquet"))
    first, second = ({op for op in pq.read_table(path)["op"].to_pylist() if op} for path in paths[:2])
    assert first & second


def test_capture_without_operations_has_null_operation_ids(tmp_path: Path) -> None:
    counts = generate(tmp_path / "journal", tmp_path / "truth", Options(FRAMES, ops=False))
    assert counts["calls"] > 0
    assert pq.read_table(tmp_path / "journal")["op"].null_count == FRAMES
    calls = pq.read_table(tmp_path / "truth" / "calls.parquet").to_pylist()
    assert all((row["caller_session"] is None) != (row["callee_session"] is None) for row in calls)


def test_plain_capture_has_only_calls(tmp_path: Path) -> None:
    counts = generate(tmp_path / "journal", tmp_path / "truth", Options(FRAMES, encodings=TEXTS, plain=True))
    assert (counts["orphans"], counts["quarantine"], counts["deliveries"]) == (0, 0, 0)
    table = pq.read_table(tmp_path / "journal")
    assert set(table["protocol"].to_pylist()) == set(TEXTS)
    assert set(table["kind"].to_pylist()) == {"text", "open", "close", "deny"}


def test_too_few_frames_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few"):
        generate(tmp_path / "journal", tmp_path / "truth", Options(10))


def test_expected_sessions_agree_with_the_records(folder: Path, records: pa.Table) -> None:
    sessions = pq.read_table(folder / "truth" / "sessions.parquet")
    kinds = Counter(records["kind"].to_pylist())
    counted = sum(sessions["frames_in"].to_pylist()) + sum(sessions["frames_out"].to_pylist())
    assert counted == kinds["text"] + kinds["binary"]
    assert sum(sessions["drops"].to_pylist()) == kinds["drop"] > 0
    assert sum(sessions["denials"].to_pylist()) == kinds["deny"] > 0
    assert sessions.num_rows == len(set(records["session"].to_pylist()))


def test_methods_fold_equally_in_all_protocols() -> None:
    for method in METHODS:
        styles = {"umq": names.UMQ, "umq36": names.UMQ36, "lrpm-json": names.LRPM, "nq": names.NQ}
        folded = {names.fold(method.written(protocol), style) for protocol, style in styles.items()}
        assert folded | {names.fold_mqtt(method.topic, method.kind)} == {method.folded}


def test_failure_codes_equal_those_of_the_bridges() -> None:
    for failed in FAILURES:
        if failed.is_application_error:
            continue
        reason = failed.reason
        assert wire_code(failed, "umq") == str(umq_bridge.CODES[reason])
        assert wire_code(failed, "umq36") == str(umq36_bridge.CODES[reason])
        assert wire_code(failed, "lrpm-json") == lrpm_bridge.URIS[reason]
        assert (wire_code(failed, "mqtt-rpc"), mqtt_tag(failed)) == (
            str(mqtt_bridge.ERRORS[reason][0]),
            mqtt_bridge.ERRORS[reason][1],
        )
        assert wire_code(failed, "nq") == (nq_bridge.CODES[reason] or None)
    assert {failed.reason for failed in FAILURES} == set(Reason)


def test_numbers_are_encoded_as_on_the_wire() -> None:
    small = np.array([256, 65535, 65536, 2**32 - 1])
    assert cbor_uint(small).to_pylist() == [cbor.write(int(number)) for number in small]
    many = np.array([SMALLEST_36, SMALLEST_36 + 12345, 36**6 - 1])
    assert base36(many).to_pylist() == [wire36.write(int(number)).encode() for number in many]
    large = np.array([1, 127, 128, 300, 2**63, 2**64 - 1], np.uint64)
    packets = [mqtt.encode(mqtt.Request("t", int(number), "x", b"", eos=True)).payload for number in large]
    assert [packet[1 : packet.index(b"\x12")] for packet in packets] == varint(large).to_pylist()
