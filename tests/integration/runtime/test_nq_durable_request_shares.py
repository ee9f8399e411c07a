"""Shares of durable requests: one owner fills its share, and all others are served, also after a restart."""

from dataclasses import replace
from pathlib import Path

from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, Settings, StoreSettings
from tests.integration.runtime.test_nq_http import SOON
from tests.support.nq_peers import Message, Poster, ask, served
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test

STRANGER = "127.0.0.6"
OTHER = "127.0.0.7"
MOST = 40
SHARE = 15
"""Half of the three quarters that requests without a callee may use."""


def shared(path: Path) -> Settings:
    ada = IdentitySettings("ada", token=Secret("t"))
    hub_settings = settings(auth=AuthSettings(identity=(ada,)), limits=LimitSettings(max_owed=MOST))
    return replace(hub_settings, store=StoreSettings(path=str(path), settle=120.0))


def stranger(place: Place) -> Poster:
    return Poster(place.port, address=STRANGER)


def other_owners(place: Place) -> list[Poster]:
    return [Poster(place.port, address=OTHER), Poster(place.port, address=STRANGER, Authorization="Bearer t")]


async def first_message(peer: Poster, r: str, target: str) -> Message:
    """Return the first message about a request."""
    messages = await peer.post(ask(r, target, 1), wait=SOON)
    while not (matching := [each for each in messages if each.get("i") == r]):
        messages = await peer.post(wait=SOON)
    await peer.close()
    return matching[0]


def is_busy(message: Message) -> bool:
    return "e" in message and message["e"]["err"] == "busy"


@async_test
async def test_full_share_of_one_owner_does_not_affect_others(tmp_path: Path) -> None:
    hub_settings = shared(tmp_path / "store.db")
    async with hub(hub_settings) as place:
        worker = await served(place, "gone")
        worker.text("M2\nhub:unregister\ngone")
        assert await worker.heard() == "R2\nnull"
        peers = [stranger(place) for _ in range(3)]
        first_messages = [await first_message(peers[number % 3], str(number), "gone") for number in range(SHARE)]
        assert not any(map(is_busy, first_messages))
        assert is_busy(await first_message(stranger(place), "more", "gone"))
        for each in other_owners(place):
            assert not is_busy(await first_message(each, "1", "gone"))
        await served(place, "live")
        for each in (stranger(place), *other_owners(place)):
            assert "e" not in await first_message(each, "2", "live")
        assert place.server.exchange.hub.stats()["owed"] == SHARE + 2 + 3
    async with hub(hub_settings) as place:
        assert place.server.exchange.hub.stats()["owed"] == SHARE + 2 + 3
        assert is_busy(await first_message(stranger(place), "more", "gone"))
        await served(place, "live")
        for each in other_owners(place):
            assert "e" not in await first_message(each, "3", "live")
        await served(place, "gone")
        assert not is_busy(await first_message(stranger(place), "again", "gone"))
