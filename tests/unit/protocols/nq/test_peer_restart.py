"""A peer that restarts in the middle of a streamed answer; the vectors show other cases."""

import pytest

from fiveways.errors import Reason
from fiveways.model import messages as hub
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.wire.payload import Json
from tests.support.conversation_driver import create_conversation, receive, sent_messages

A = hub.Result("x", Json(b'"a"'), stream=True, last=False)
Z = hub.Result("x", Json(b'"z"'), stream=True, last=False)


def peer_note(run: str) -> dict[str, object]:
    return {"e": {"type": "sys", "note": "peer", "args": ["me", run]}}


def part(a: str, d: str, n: int = 1) -> dict[str, object]:
    return {"a": a, "i": "h-1", "d": d, "n": n}


def streaming() -> NqConversation:
    """Return a conversation that has delivered one part of an answer."""
    conversation = create_conversation()
    receive(conversation, peer_note("p"))
    conversation.send(hub.Call("x", "count", stream=True), 0.0)
    assert receive(conversation, part("p-1", "a")) == [A]
    sent_messages(conversation)
    return conversation


def test_revoked_parts_are_replaced_by_the_new_run() -> None:
    conversation, request = streaming(), list[str]()
    conversation.on_forget_parts(lambda name: not request.append(name))  # type: ignore[func-returns-value]
    receive(conversation, peer_note("q"))
    assert receive(conversation, part("q-1", "z")) == [Z]
    assert receive(conversation, part("q-1", "y", 2) | {"f": 0}) == [hub.Result("x", Json(b'"y"'), stream=True)]
    assert request == ["x"]
    assert conversation.is_idle


def test_queued_parts_cannot_be_revoked() -> None:
    conversation = streaming()
    conversation.on_forget_parts(lambda name: pytest.fail(f"{name} has not received all of it"))
    b = hub.Result("x", Json(b'"b"'), stream=True, last=False)
    received = receive(conversation, part("p-1", "b", 2), peer_note("q"), part("q-1", "z"))
    assert received[0] == b
    assert [(type(message), getattr(message, "reason", None)) for message in received[1:]] == [
        (hub.Failure, Reason.LOST)
    ]


def test_cancelled_answer_loses_nothing_on_restart() -> None:
    conversation = create_conversation()
    receive(conversation, peer_note("p"))
    conversation.send(hub.Publish(None, ("a",)), 0.0)
    assert receive(conversation, part("p-1", "a"), peer_note("q"), part("q-1", "z") | {"f": 0}) == []
    assert conversation.is_idle


def test_cancellation_uses_an_id_that_the_peer_knows() -> None:
    conversation = create_conversation()
    receive(conversation, peer_note("p"))
    conversation.send(hub.Call("x", "count"), 0.0)
    receive(conversation, {"a": "p-1", "i": "h-1"}, peer_note("q"))
    sent_messages(conversation)
    conversation.send(hub.Cancel("x"), 0.0)
    error = {"type": "local", "fatal": True, "err": "cancelled"}
    assert sent_messages(conversation) == [{"t": "count", "i": "h-1", "e": error}]
