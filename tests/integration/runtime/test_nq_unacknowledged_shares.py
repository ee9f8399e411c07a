"""Shares of unacknowledged answers: peers of one address fill its share, and others get their answers."""

from dataclasses import replace
from pathlib import Path

from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, StoreSettings
from tests.integration.runtime.test_nq_durable_request_shares import OTHER, STRANGER, is_busy, other_owners, stranger
from tests.integration.runtime.test_nq_http import SOON
from tests.support.nq_peers import Message, Poster, ask
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test

LIMIT = 2 << 20
SIZE = 200_000
PEERS = 12
TEXT = "x" * SIZE


def held_bytes(place: Place) -> int:
    """Return the bytes of answers that the hub holds."""
    return sum(each.conversation._shared.answer_budget.used for each in place.server.resumable_sessions._by_id.values())


async def echoed(peer: Poster) -> Message:
    (answer,) = await peer.post(ask("1", "hub-echo", TEXT), wait=SOON)
    await peer.close()
    return answer


@async_test
async def test_unacknowledged_answers_are_bounded_over_all_peers(tmp_path: Path) -> None:
    ada = IdentitySettings("ada", token=Secret("t"))
    limits = LimitSettings(max_unacknowledged_bytes=LIMIT)
    hub_settings = settings(auth=AuthSettings(identity=(ada,)), limits=limits)
    hub_settings = replace(hub_settings, store=StoreSettings(path=str(tmp_path / "store.db")))
    async with hub(hub_settings) as place:
        answers = [await echoed(stranger(place)) for _ in range(PEERS)]
        assert sum("d" in each for each in answers) == LIMIT // 2 // SIZE
        assert is_busy(answers[-1])
        assert held_bytes(place) <= LIMIT // 2 + PEERS * (1 << 14)
        assert OTHER != STRANGER
        for each in other_owners(place):
            assert (await echoed(each))["d"] == TEXT
