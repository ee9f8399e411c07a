"""An incompatible picows is reported at the start of the hub, not at each connection."""

import asyncio

import picows.picows
import pytest

from fiveways.transports.websocket_server import UnsupportedPicows
from tests.support.raw_peers import hub, settings


async def start() -> None:
    async with hub(settings()):
        pass


@pytest.mark.parametrize("other", [None, lambda _one, _two: None], ids=["absent", "other arguments"])
def test_hub_does_not_start_with_an_incompatible_picows(monkeypatch: pytest.MonkeyPatch, other: object) -> None:
    if other is None:
        monkeypatch.delattr(picows.picows, "WSProtocol")
    else:
        monkeypatch.setattr(picows.picows, "WSProtocol", other)
    with pytest.raises(UnsupportedPicows, match=r"^the hub cannot use picows [\d.]+ \(.+\); install a version that"):
        asyncio.run(start())
