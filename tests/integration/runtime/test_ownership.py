"""Ownership of names and topics by identities, in each protocol."""

from collections import Counter

import pytest

from fiveways.client.connect import Connector, connect
from fiveways.client.peer import Peer
from fiveways.errors import NotExecuted, Reason
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test

OWNER, STRANGER = (IdentitySettings(name, token=Secret(f"of-{name}")) for name in ("owner", "stranger"))
RULES = AuthSettings(identity=(OWNER, STRANGER))
SCHEMES = ("umq+ws", "umq36+ws", "lrpm+ws", "nq+ws", "nq+http")


def at(place: Place, scheme: str = "lrpm+ws", identity: str = "") -> Connector:
    """A connection as an identity, or as an anonymous peer."""
    token = f"of-{identity}" if identity else ""
    return connect(f"{scheme}://127.0.0.1:{place.port}", token=token)


async def callees(peer: Peer, method: str) -> Counter[object]:
    return Counter([await peer.call(method) for _ in range(40)])


async def denied(peer: Peer, name: str, share: str = "") -> str:
    """Return the error text of a denied registration."""
    with pytest.raises(NotExecuted) as refused:
        await peer.register(name, lambda: "stranger", share=share)
    assert refused.value.reason is Reason.DENIED
    return refused.value.text


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("identity", ["stranger", ""])
@async_test
async def test_all_calls_go_to_the_identity_that_registered_the_method_first(scheme: str, identity: str) -> None:
    async with hub(settings(auth=RULES)) as place, at(place) as caller, at(place, scheme, identity) as stranger:
        async with at(place, identity="owner") as owner:
            await owner.register("bank.pay", lambda: "owner", share="first")
            assert "belongs to another identity" in await denied(stranger, "bank.pay", "first")
            assert await callees(caller, "bank.pay") == {"owner": 40}
        assert "belongs to another identity" in await denied(stranger, "bank.pay", "first")
        async with at(place, identity="owner") as owner:
            await owner.register("bank.pay", lambda: "owner", share="first")
            assert await callees(caller, "bank.pay") == {"owner": 40}


@async_test
async def test_longer_route_of_another_identity_is_denied() -> None:
    async with hub(settings(auth=RULES)) as place:
        owner, stranger = await place.umq("of-owner"), await place.umq("of-stranger")
        owner.text("M1\nhub:register\nBank:")
        assert await owner.heard() == "R1\nnull"
        stranger.text("M1\nhub:register\nBank:Account:")
        frame = await stranger.heard()
        assert frame.startswith("!1\n12 ")
        assert "belongs to another identity" in frame


@pytest.mark.parametrize("scheme", SCHEMES)
@async_test
async def test_topic_of_others_is_not_closed(scheme: str) -> None:
    async with (
        hub(settings(auth=RULES)) as place,
        at(place, scheme, "stranger") as stranger,
        at(place, identity="owner") as owner,
        owner.subscribe("news") as events,
    ):
        with pytest.raises(NotExecuted, match="you may not close news"):
            await stranger.close_topic("news")
        await stranger.publish("news", 1)
        assert (await anext(events)).data == 1
        await owner.close_topic("news")
        assert [event async for event in events] == []
