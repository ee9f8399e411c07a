"""What NQ peers of one owner make the hub hold, however many they are, is within its share."""

from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery
from fiveways.hub.settings import HubSettings
from fiveways.model.messages import Call, Event, Failure, Result, Subscribe
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.protocols.nq.session_state import BORROW_STEP, UNBORROWED_BYTES
from fiveways.wire.payload import Json
from tests.support.conversation_driver import hear, make, said
from tests.support.hub_helpers import LRPM, offer, only
from tests.unit.hub.test_owner_shares import ADA, OTHER, STRANGER, join, shared

LIMIT = 32 * BORROW_STEP
LONG = Json(b'"' + b"x" * 20_000 + b'"')


def bounded() -> Hub:
    return shared(max_unacknowledged_bytes=LIMIT)


def talking(hub: Hub, peer: str, address: str, token: str = "") -> NqConversation:
    """A peer that takes nothing from the hub but its name."""
    talk = make()
    talk.borrow_from(hub.unacknowledged_bytes.track(join(hub, peer, address, token)))
    return talk


def answered(talk: NqConversation, most: int = 1000) -> int:
    """Ask for long answers until one is refused; return how many were kept."""
    for number in range(most):
        words = hear(talk, {"t": "m", "r": str(number), "d": 1})
        if not words:
            assert said(talk)[-1]["e"]["err"] == "busy"
            return number
        try:
            talk.send(Result(f"m#{number}", LONG), 0.0)
        except LocalProtocolError as error:
            assert "too many bytes of answers" in str(error)  # noqa: PT017  most are refused before they are run
            talk.send(Failure(f"m#{number}", Reason.RAISED, str(error)), 0.0)
            return number
    return most


def test_responses_to_many_sessions_of_one_address_stay_within_its_share() -> None:
    hub = bounded()
    kept = [answered(talking(hub, f"s{number}", STRANGER)) for number in range(20)]
    assert sum(kept) * 20_000 <= LIMIT // 2 + 20 * UNBORROWED_BYTES
    assert hub.unacknowledged_bytes.pool.used <= LIMIT // 2
    assert kept[-5:] == [0] * 5
    assert answered(talking(hub, "other", OTHER), 5) == 5
    assert answered(talking(hub, "ada", STRANGER, "t"), 5) == 5


def test_requests_of_owner_without_room_are_refused_before_they_run() -> None:
    hub = bounded()
    for number in range(20):
        answered(talking(hub, f"s{number}", STRANGER))
    fresh = talking(hub, "fresh", STRANGER)
    assert hear(fresh, {"t": "m", "r": "1", "d": 1}) == []
    assert said(fresh)[-1]["e"]["err"] == "busy"
    assert hear(talking(hub, "other", OTHER), {"t": "m", "r": "1", "d": 1}) != []


def test_acknowledgement_or_end_of_session_frees_the_share() -> None:
    hub = bounded()
    talk = talking(hub, "one", STRANGER)
    assert answered(talk) > 10
    said(talk)
    for each in list(talk._by_backchannel):
        hear(talk, {"i": each})
    assert hub.unacknowledged_bytes.pool.used <= 3 * BORROW_STEP
    assert answered(talking(hub, "two", STRANGER)) > 10
    hub.leave("one", 0.0)
    hub.leave("two", 0.0)
    assert (hub.unacknowledged_bytes.pool.used, hub.unacknowledged_bytes.pool._by_owner) == (0, {})
    hear(talk, {"t": "m", "r": "late", "d": 1})
    assert hub.unacknowledged_bytes.pool.used == 0


def test_small_responses_do_not_use_the_pool() -> None:
    hub = bounded()
    talk = talking(hub, "one", STRANGER)
    for number in range(100):
        hear(talk, {"t": "m", "r": str(number), "d": 1})
        talk.send(Result(f"m#{number}", Json(b"1")), 0.0)
    assert hub.unacknowledged_bytes.pool.used == 0


def test_requests_to_silent_peers_count_against_the_limit() -> None:
    hub = bounded()
    refused = 0
    for number in range(20):
        talk = talking(hub, f"s{number}", STRANGER)
        for call in range(10):
            try:
                talk.send(Call(str(call), "m", LONG), 0.0)
            except LocalProtocolError as error:
                assert "too many bytes" in str(error)  # noqa: PT017  the first of them are taken
                refused += 1
    assert refused > 50
    assert hub.unacknowledged_bytes.pool.used <= LIMIT // 2
    talking(hub, "other", OTHER).send(Call("1", "m", LONG), 0.0)


def test_events_for_silent_peers_count_against_the_limit() -> None:
    hub = bounded()
    talks = [talking(hub, f"s{number}", STRANGER) for number in range(60)]
    missed = 0
    for talk in talks:
        (word,) = hear(talk, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}})
        assert isinstance(word, Subscribe)
        talk.send(Result("hub-subscribe#1"), 0.0)
    for talk in talks:
        try:
            talk.send(Event("x", ("a",), LONG), 0.0)
        except LocalProtocolError:
            missed += 1
    assert missed > 0
    assert hub.unacknowledged_bytes.pool.used <= LIMIT // 2


def test_restored_responses_may_exceed_the_share_and_are_counted() -> None:
    hub = bounded()
    talk = make()
    for number in range(110):
        hear(talk, {"t": "m", "r": str(number), "d": 1})
        talk.send(Result(f"m#{number}", LONG), 0.0)
    talk.borrow_from(hub.unacknowledged_bytes.track(join(hub, "one", STRANGER)))
    assert hub.unacknowledged_bytes.pool.used > LIMIT // 2
    assert len([each for each in said(talk) if "d" in each]) == 110
    assert hear(talking(hub, "two", STRANGER), {"t": "m", "r": "1", "d": 1}) == []
    assert answered(talking(hub, "ada", STRANGER, "t"), 1) == 0, "the restored answers use the whole limit"
    hub.leave("one", 0.0)
    assert answered(talking(hub, "three", STRANGER), 1) == 1


def test_new_limit_applies_immediately() -> None:
    hub = bounded()
    talk = talking(hub, "one", STRANGER)
    answered(talk, 20)
    hub.reload(HubSettings(anonymous="always", identities=(ADA,), max_unacknowledged_bytes=4 * BORROW_STEP))
    assert answered(talking(hub, "two", STRANGER)) == 0


def test_dropped_response_is_reported_as_failure() -> None:
    hub = shared()
    join(hub, "ann", OTHER, traits=LRPM)
    offer(hub, join(hub, "bob", OTHER, traits=LRPM), "m")
    hub.handle("ann", Call("1", "m"), 0.0)
    (answer,) = hub.handle("bob", Result("1", LONG), 0.0)
    assert isinstance(answer, Delivery)
    told = only(hub.handle_undelivered(answer, LocalProtocolError("too many bytes of answers"), 0.0), Failure)
    text = "the method has run, and its answer was dropped: too many bytes of answers"
    assert (told.reason, told.name, told.text) == (Reason.RAISED, "overloaded", text)
    hub.handle("ann", Call("2", "m"), 0.0)
    (answer,) = hub.handle("bob", Result("2", LONG), 0.0)
    assert isinstance(answer, Delivery)
    told = only(hub.handle_undelivered(answer, Unrepresentable("too many"), 0.0), Failure)
    assert (told.name, told.text) == ("", "the answer cannot be written in lrpm-json")
