"""Session variables."""

import asyncio

import pytest

from fiveways.model.messages import Call, Result, SetVariable, UnsetVariable
from fiveways.wire.payload import Text, Value
from tests.support.running import async_test, loop_iterations
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub, granting

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@every_protocol
@async_test
async def test_variables_are_set_unset_and_read(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = granting
    async with hub.client() as (peer, session):
        await peer.vars.set("language", {"code": "cs"})
        was_set = await session.next(SetVariable)
        assert (was_set.name, was_set.body.value()) == ("language", {"code": "cs"})
        await peer.vars.unset("language")
        assert (await session.next(UnsetVariable)).name == "language"
        task = asyncio.create_task(peer.vars.get("language", peer="s2"))
        call = await session.next(Call)
        assert (call.method, call.body.value()) == ("hub.get", {"name": "language", "peer": "s2"})
        session.say(Result(call.id, Value("cs")))
        assert await task == "cs"


@pytest.mark.parametrize("protocol", ["umq", "umq36"])
@async_test
async def test_variables_set_by_the_hub_are_read(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    async with hub.client() as (peer, session):
        session.say(SetVariable(None, "motd", Value([1])), SetVariable(None, "other", Value(2)))
        session.say(UnsetVariable(None, "other"))
        await loop_iterations()
        assert dict(peer.vars.theirs) == {"motd": [1]}


@async_test
async def test_variable_of_the_hub_that_cannot_be_decoded_is_none() -> None:
    async with ScriptedHub("umq").client() as (peer, session):
        session.say(SetVariable(None, "odd", Text('{"$number":"7"}')))
        await loop_iterations()
        assert dict(peer.vars.theirs) == {"odd": None}
