"""Unacknowledged bytes of all NQ sessions of one owner stay within its share."""

from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery
from fiveways.hub.settings import HubSettings
from fiveways.model.messages import Call, Event, Failure, Result, Subscribe
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.protocols.nq.session_state import BORROW_STEP, UNBORROWED_BYTES
from fiveways.wire.payload import Json
from tests.support.conversation_driver import create_conversation, receive, sent_messages
from tests.support.hub_helpers import LRPM, only_message, register_method
from tests.unit.hub.test_owner_shares import ADA, ANONYMOUS_ADDRESS, OTHER_ADDRESS, hub_with_shares, join

LIMIT = 32 * BORROW_STEP
LONG = Json(b'"' + b"x" * 20_000 + b'"')


def hub_with_limit() -> Hub:
    return hub_with_shares(max_unacknowledged_bytes=LIMIT)


def start_conversation(hub: Hub, peer: str, address: str, token: str = "") -> NqConversation:
    """Start a conversation that acknowledges only its welcome."""
    conversation = create_conversation()
    conversation.borrow_from(hub.unacknowledged_bytes.track(join(hub, peer, address, token)))
    return conversation


def count_accepted(conversation: NqConversation, limit: int = 1000) -> int:
    """Send requests with large responses until one is refused; return the number of accepted requests."""
    for number in range(limit):
        messages = receive(conversation, {"t": "m", "r": str(number), "d": 1})
        if not messages:
            assert sent_messages(conversation)[-1]["e"]["err"] == "busy"
            return number
        try:
            conversation.send(Result(f"m#{number}", LONG), 0.0)
        except LocalProtocolError as error:
            assert "too many bytes of answers" in str(error)  # noqa: PT017  most are refused before they are run
            conversation.send(Failure(f"m#{number}", Reason.RAISED, str(error)), 0.0)
            return number
    return limit


def test_responses_to_many_sessions_of_one_address_stay_within_its_share() -> None:
    hub = hub_with_limit()
    accepted = [count_accepted(start_conversation(hub, f"s{number}", ANONYMOUS_ADDRESS)) for number in range(20)]
    assert sum(accepted) * 20_000 <= LIMIT // 2 + 20 * UNBORROWED_BYTES
    assert hub.unacknowledged_bytes.pool.used <= LIMIT // 2
    assert accepted[-5:] == [0] * 5
    assert count_accepted(start_conversation(hub, "other", OTHER_ADDRESS), 5) == 5
    assert count_accepted(start_conversation(hub, "ada", ANONYMOUS_ADDRESS, "t"), 5) == 5


def test_requests_of_owner_without_room_are_refused_before_they_run() -> None:
    hub = hub_with_limit()
    for number in range(20):
        count_accepted(start_conversation(hub, f"s{number}", ANONYMOUS_ADDRESS))
    fresh = start_conversation(hub, "fresh", ANONYMOUS_ADDRESS)
    assert receive(fresh, {"t": "m", "r": "1", "d": 1}) == []
    assert sent_messages(fresh)[-1]["e"]["err"] == "busy"
    assert receive(start_conversation(hub, "other", OTHER_ADDRESS), {"t": "m", "r": "1", "d": 1}) != []


def test_acknowledgement_or_end_of_session_frees_the_share() -> None:
    hub = hub_with_limit()
    conversation = start_conversation(hub, "one", ANONYMOUS_ADDRESS)
    assert count_accepted(conversation) > 10
    sent_messages(conversation)
    for frame in list(conversation._by_backchannel):
        receive(conversation, {"i": frame})
    assert hub.unacknowledged_bytes.pool.used <= 3 * BORROW_STEP
    assert count_accepted(start_conversation(hub, "two", ANONYMOUS_ADDRESS)) > 10
    hub.leave("one", 0.0)
    hub.leave("two", 0.0)
    assert (hub.unacknowledged_bytes.pool.used, hub.unacknowledged_bytes.pool._by_owner) == (0, {})
    receive(conversation, {"t": "m", "r": "late", "d": 1})
    assert hub.unacknowledged_bytes.pool.used == 0


def test_small_responses_do_not_use_the_pool() -> None:
    hub = hub_with_limit()
    conversation = start_conversation(hub, "one", ANONYMOUS_ADDRESS)
    for number in range(100):
        receive(conversation, {"t": "m", "r": str(number), "d": 1})
        conversation.send(Result(f"m#{number}", Json(b"1")), 0.0)
    assert hub.unacknowledged_bytes.pool.used == 0


def test_requests_to_silent_peers_count_against_the_limit() -> None:
    hub = hub_with_limit()
    refused = 0
    for number in range(20):
        conversation = start_conversation(hub, f"s{number}", ANONYMOUS_ADDRESS)
        for call in range(10):
            try:
                conversation.send(Call(str(call), "m", LONG), 0.0)
            except LocalProtocolError as error:
                assert "too many bytes" in str(error)  # noqa: PT017  the first of them are taken
                refused += 1
    assert refused > 50
    assert hub.unacknowledged_bytes.pool.used <= LIMIT // 2
    start_conversation(hub, "other", OTHER_ADDRESS).send(Call("1", "m", LONG), 0.0)


def test_events_for_silent_peers_count_against_the_limit() -> None:
    hub = hub_with_limit()
    talks = [start_conversation(hub, f"s{number}", ANONYMOUS_ADDRESS) for number in range(60)]
    missed = 0
    for conversation in talks:
        (message,) = receive(conversation, {"t": "hub-subscribe", "r": "1", "d": {"topic": "a", "id": "x"}})
        assert isinstance(message, Subscribe)
        conversation.send(Result("hub-subscribe#1"), 0.0)
    for conversation in talks:
        try:
            conversation.send(Event("x", ("a",), LONG), 0.0)
        except LocalProtocolError:
            missed += 1
    assert missed > 0
    assert hub.unacknowledged_bytes.pool.used <= LIMIT // 2


def test_restored_responses_may_exceed_the_share_and_are_counted() -> None:
    hub = hub_with_limit()
    conversation = create_conversation()
    for number in range(110):
        receive(conversation, {"t": "m", "r": str(number), "d": 1})
        conversation.send(Result(f"m#{number}", LONG), 0.0)
    conversation.borrow_from(hub.unacknowledged_bytes.track(join(hub, "one", ANONYMOUS_ADDRESS)))
    assert hub.unacknowledged_bytes.pool.used > LIMIT // 2
    assert len([frame for frame in sent_messages(conversation) if "d" in frame]) == 110
    assert receive(start_conversation(hub, "two", ANONYMOUS_ADDRESS), {"t": "m", "r": "1", "d": 1}) == []
    assert count_accepted(start_conversation(hub, "ada", ANONYMOUS_ADDRESS, "t"), 1) == 0, (
        "the restored answers use the whole limit"
    )
    hub.leave("one", 0.0)
    assert count_accepted(start_conversation(hub, "three", ANONYMOUS_ADDRESS), 1) == 1


def test_new_limit_applies_immediately() -> None:
    hub = hub_with_limit()
    conversation = start_conversation(hub, "one", ANONYMOUS_ADDRESS)
    count_accepted(conversation, 20)
    hub.reload(HubSettings(anonymous="always", identities=(ADA,), max_unacknowledged_bytes=4 * BORROW_STEP))
    assert count_accepted(start_conversation(hub, "two", ANONYMOUS_ADDRESS)) == 0


def test_dropped_response_is_reported_as_failure() -> None:
    hub = hub_with_shares()
    join(hub, "ann", OTHER_ADDRESS, traits=LRPM)
    register_method(hub, join(hub, "bob", OTHER_ADDRESS, traits=LRPM), "m")
    hub.handle("ann", Call("1", "m"), 0.0)
    (answer,) = hub.handle("bob", Result("1", LONG), 0.0)
    assert isinstance(answer, Delivery)
    failure = only_message(
        hub.handle_undelivered(answer, LocalProtocolError("too many bytes of answers"), 0.0), Failure
    )
    text = "the method has run, and its answer was dropped: too many bytes of answers"
    assert (failure.reason, failure.name, failure.text) == (Reason.RAISED, "overloaded", text)
    hub.handle("ann", Call("2", "m"), 0.0)
    (answer,) = hub.handle("bob", Result("2", LONG), 0.0)
    assert isinstance(answer, Delivery)
    failure = only_message(hub.handle_undelivered(answer, Unrepresentable("too many"), 0.0), Failure)
    assert (failure.name, failure.text) == ("", "the answer cannot be written in lrpm-json")
