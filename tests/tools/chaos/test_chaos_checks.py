"""Each check of `make chaos` reports the fault that it is meant to detect."""

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from chaos.hubs import HubAddress, HubLifetime
from chaos.journal_audit import audit
from chaos.net.relay import Conditions, Direction
from chaos.participants import Report, merged
from chaos.raw_nq import Acknowledgement, OpenRequest, RawRequester
from chaos.raw_peers import RawLrpm, RawPeer
from chaos.retained import RetainedReader, RetainedWriter
from chaos.work_queues import JobStates, QueueDrainer
from fiveways.journal.schema import SCHEMA

HUB = HubAddress("127.0.0.1", 1, 2)


def record(seq: int, direction: str, payload: bytes) -> dict[str, object]:
    fixed = {"at": 0, "node": "n", "run": "r", "session": "s", "protocol": "nq", "transport": "http", "kind": "text"}
    empty = dict.fromkeys(SCHEMA.names)
    return empty | fixed | {"seq": seq, "direction": direction, "payload": payload, "size": len(payload)}


def audit_journal(folder: Path, records: list[dict[str, object]], received_at: float) -> Report:
    parquet.write_table(pa.Table.from_pylist(records, SCHEMA), folder / "r-000001.parquet")
    lives = [HubLifetime(0.0, 10.0), HubLifetime(11.0)]
    return asyncio.run(audit(folder, [Acknowledgement("raw0-1", 1.0, received_at)], lives))


ASKED = record(0, "in", b'{"t":"m","r":"raw0-1","d":1}')
ANSWERED = record(1, "out", b'[{"a":"x","i":"raw0-1","d":2}]')


def test_complete_journal_is_clean(tmp_path: Path) -> None:
    report = audit_journal(tmp_path, [ASKED, ANSWERED], 5.0)
    assert report.is_clean
    assert report.figures["acknowledged"] == 1


@pytest.mark.parametrize("records", [[ASKED], [ANSWERED | {"seq": 0}]])
def test_missing_record_of_an_acknowledged_request_counts_as_lost(
    tmp_path: Path, records: list[dict[str, object]]
) -> None:
    assert audit_journal(tmp_path, records, 5.0).lost == 1


def test_record_within_the_bound_of_a_kill_may_be_missing(tmp_path: Path) -> None:
    assert audit_journal(tmp_path, [ASKED], 9.95).is_clean


def test_gap_in_a_journal_is_wrong(tmp_path: Path) -> None:
    assert len(audit_journal(tmp_path, [ASKED, ANSWERED | {"seq": 2}], 5.0).wrong) == 1


def test_unreadable_segment_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "r-000000.parquet").write_bytes(b"no parquet")
    assert len(audit_journal(tmp_path, [ASKED, ANSWERED], 5.0).failures) == 1


def requester(*answers: dict[str, Any]) -> Report:
    raw_requester = RawRequester(HUB, Random(1), "raw0", 1, ("chaos-work",))
    raw_requester._open["raw0-3"] = OpenRequest("chaos-work", 3, 0.0, 0.0, 0.0)
    for message in answers:
        raw_requester._handle_message({"a": "x", "i": "raw0-3"} | message)
    return raw_requester.report()


def test_repeated_response_counts_once() -> None:
    report = requester({"d": {"n": 3, "square": 9}}, {"d": {"n": 3, "square": 9}})
    assert report.is_clean
    assert report.figures["answered"] == 1


def test_request_without_a_response_counts_as_lost() -> None:
    assert requester({}).lost == 1


def test_responses_of_two_runs_count_as_doubled() -> None:
    answers = [{"d": {"n": 3, "square": 9, "run": run}} for run in (1, 2)]
    assert requester(*answers).doubled == 1


def test_response_to_another_number_is_wrong() -> None:
    assert len(requester({"d": {"n": 4, "square": 16}}).wrong) == 1


def test_fatal_error_counts_as_failure() -> None:
    assert len(requester({"e": {"type": "local", "fatal": True, "err": "busy"}}).failures) == 1


def test_acknowledged_job_that_was_not_done_counts_as_lost() -> None:
    states = JobStates(pushed={1, 2, 3}, acknowledged={1, 2})
    states.done[1] += 1
    assert asyncio.run(drainer_report(states)).lost == 1


def test_job_done_twice_after_the_last_kill_counts_as_doubled() -> None:
    states = JobStates(pushed={1}, acknowledged={1})
    states.done[1] += 2
    states.done_at_last[1] += 2
    assert asyncio.run(drainer_report(states)).doubled == 1


async def drainer_report(states: JobStates) -> Report:
    return QueueDrainer(HUB, Random(1), states).report()


class SubscribedPeer(RawLrpm):
    """A peer whose hub has one retained value."""

    def __init__(self, value: object) -> None:
        self.value = value

    async def subscribe(self, topic: str, on_event: Any) -> None:  # noqa: ANN401
        if self.value is not None:
            on_event(self.value)

    async def call(self, name: str, body: object = None) -> object:
        return "pong"


@pytest.mark.parametrize(("value", "lost", "wrong"), [(7, 0, 0), (9, 0, 0), (6, 1, 1), (10, 0, 1), (None, 1, 1)])
def test_first_value_of_a_new_subscription_is_compared(value: object, lost: int, wrong: int) -> None:
    async def read() -> Report:
        writer = RetainedWriter(HUB, Random(1), 1)
        writer.acknowledged, writer.sent = 7, 9
        reader = RetainedReader(HUB, Random(1), [writer])
        peer: RawPeer = SubscribedPeer(value)
        await reader._check(peer, writer)
        return reader.report()

    report = asyncio.run(read())
    assert (report.lost, len(report.wrong)) == (lost, wrong)


def test_reports_of_one_kind_are_added() -> None:
    first, second, other = Report("a", lost=1), Report("a", doubled=2), Report("b")
    first.figures["runs"], second.figures["runs"] = 1, 2
    total, rest = merged([first, second, other])
    assert (total.lost, total.doubled, total.figures["runs"], rest.kind) == (1, 2, 3, "b")


def relayed(conditions: Conditions, count: int) -> tuple[list[bytes], Direction]:
    """Return the packets that arrive, and the relay's direction."""

    async def relay() -> tuple[list[bytes], Direction]:
        source, sender = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)  # packets, as a TUN device has
        receiver, target = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
        try:
            direction = Direction(source, target, Random(1))
            direction.conditions = conditions
            direction.start()
            for number in range(count):
                os.write(sender, b"%d" % number)
                await asyncio.sleep(0)
            while direction.passed + direction.dropped < count:  # noqa: ASYNC110  the relay has no event for it
                await asyncio.sleep(0.001)
            arrived = [os.read(receiver, 100) for _ in range(direction.passed)]
            direction.stop()
        finally:
            for descriptor in (source, sender, receiver, target):
                os.close(descriptor)
        return arrived, direction

    return asyncio.run(relay())


def test_good_network_keeps_all_packets_in_order() -> None:
    arrived, _ = relayed(Conditions(delay=0.002, jitter=0.002), 12)
    assert arrived == [b"%d" % number for number in range(12)]


def test_lossy_network_drops_some_packets() -> None:
    arrived, direction = relayed(Conditions(loss=0.5), 12)
    assert 0 < len(arrived) < 12
    assert len(arrived) + direction.dropped == 12


def test_reordered_packets_arrive_later() -> None:
    arrived, _ = relayed(Conditions(reorder=0.3), 12)
    assert sorted(arrived) == sorted(b"%d" % number for number in range(12))
    assert arrived != sorted(arrived, key=int)


def test_cut_network_drops_all_packets() -> None:
    assert relayed(Conditions(is_cut=True), 12)[1].dropped == 12
