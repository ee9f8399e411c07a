"""Deadlines that are due at once, repeatedly: uvloop's timer handles do not return their time then."""

import asyncio
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvloop

from fiveways.client.hub_reconnector import HubReconnector
from fiveways.client.session import Session
from fiveways.client.settings import ClientSettings
from fiveways.client.urls import parse
from fiveways.hub.core import Hub
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.resumable_session import ResumableSession
from fiveways.wire.limits import Limits
from tests.unit.runtime.test_slow_consumer_attachments import LIMITS, peer

NQ = registry.load("nq")


def create_session() -> ResumableSession:
    conversation = NQ.create_conversation(ConversationSetup("peer", Role.SERVER, Random(3), Limits()))
    assert isinstance(conversation, NqConversation)
    return ResumableSession(conversation, Exchange(Hub(Random(1), LIMITS)), Limits())


def session() -> Session:
    settings = ClientSettings(parse("umq+ws://hub"))
    return Session(registry.load("umq"), settings, HubReconnector(settings, MagicMock()), count(1))


MAKERS: list[Callable[[], object]] = [
    create_session,
    lambda: peer("one", Exchange(Hub(Random(1), LIMITS)))[0],
    session,
]


@pytest.mark.parametrize("make", MAKERS, ids=["standing", "pump", "client"])
def test_immediate_deadline_can_be_set_again(make: Callable[[], object]) -> None:
    async def run() -> list[float]:
        timer: Any = make()
        set_deadline, callback = (
            ("_set_timer", "_on_timer") if type(timer) is Session else ("_set_deadline", "_on_deadline")
        )
        woken: list[float] = []
        now = asyncio.get_running_loop().time()
        setattr(timer, callback, lambda: woken.append(1))
        for deadline in (now, now + 60, now - 1):
            getattr(timer, set_deadline)(deadline)
        await asyncio.sleep(0.01)
        return woken

    assert uvloop.run(run()) == [1]
