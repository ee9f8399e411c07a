"""A stranger fills its share of the durable requests, and all others get through: with workers, and after a restart."""

from dataclasses import replace
from pathlib import Path

from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, Settings, StoreSettings
from tests.integration.runtime.test_nq_http import SOON, waiting
from tests.support.nq_peers import Message, Poster, ask, served
from tests.support.raw_peers import Place, hub, settings

STRANGER = "127.0.0.6"
OTHER = "127.0.0.7"
MOST = 40
SHARE = 15
"""Half of the three quarters that requests without a callee may use."""


def shared(path: Path) -> Settings:
    ada = IdentitySettings("ada", token=Secret("t"))
    given = settings(auth=AuthSettings(identity=(ada,)), limits=LimitSettings(max_owed=MOST))
    return replace(given, store=StoreSettings(path=str(path), settle=120.0))


def stranger(place: Place) -> Poster:
    return Poster(place.port, address=STRANGER)


def everybody_else(place: Place) -> list[Poster]:
    return [Poster(place.port, address=OTHER), Poster(place.port, address=STRANGER, Authorization="Bearer t")]


async def first_of(peer: Poster, r: str, target: str) -> Message:
    """Return what the peer hears of a request at first."""
    said = await peer.post(ask(r, target, 1), wait=SOON)
    while not (found := [each for each in said if each.get("i") == r]):
        said = await peer.post(wait=SOON)
    await peer.close()
    return found[0]


def is_busy(message: Message) -> bool:
    return "e" in message and message["e"]["err"] == "busy"


@waiting
async def test_others_get_through_while_a_stranger_fills_its_share_and_after_a_restart(tmp_path: Path) -> None:
    given = shared(tmp_path / "store.db")
    async with hub(given) as place:
        worker = await served(place, "gone")
        worker.text("M2\nhub:unregister\ngone")
        assert await worker.heard() == "R2\nnull"
        peers = [stranger(place) for _ in range(3)]
        heard = [await first_of(peers[number % 3], str(number), "gone") for number in range(SHARE)]
        assert not any(map(is_busy, heard))
        assert is_busy(await first_of(stranger(place), "more", "gone"))
        for each in everybody_else(place):
            assert not is_busy(await first_of(each, "1", "gone"))
        await served(place, "live")
        for each in (stranger(place), *everybody_else(place)):
            assert "e" not in await first_of(each, "2", "live")
        assert place.server.exchange.hub.stats()["owed"] == SHARE + 2 + 3
    async with hub(given) as place:
        assert place.server.exchange.hub.stats()["owed"] == SHARE + 2 + 3
        assert is_busy(await first_of(stranger(place), "more", "gone"))
        await served(place, "live")
        for each in everybody_else(place):
            assert "e" not in await first_of(each, "3", "live")
        await served(place, "gone")
        assert not is_busy(await first_of(stranger(place), "again", "gone"))
