"""Recording of a hub, and its replay to another hub."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fiveways.app import App
from fiveways.journal.records import merge_by_time
from fiveways.journal.segments import list_segments
from fiveways.replay.replay_target import ReplayTarget
from fiveways.replay.replayer import ReplayConfig, Replayer
from fiveways.settings.operations import JournalSettings
from fiveways.settings.sections import Settings, ZmqSettings
from tests.support.raw_peers import Place, hub, settings

URLS = {
    "umq": "umq+ws://127.0.0.1:{port}",
    "umq36": "umq36+ws://127.0.0.1:{port}",
    "lrpm-json": "lrpm+ws://127.0.0.1:{port}",
    "lrpm-cbor": "lrpm+ws://127.0.0.1:{port}?encoding=cbor",
    "nq": "nq+ws://127.0.0.1:{port}",
    "nq http": "nq+http://127.0.0.1:{port}",
}


@asynccontextmanager
async def recording(path: Path, app: App | None = None, base: Settings | None = None) -> AsyncIterator[Place]:
    """Run a hub that records a journal."""
    hub_settings = replace(base or settings(), journal=JournalSettings(path=str(path), flush_interval=0.01))
    async with hub(hub_settings, app) as place:
        yield place


async def replayed(path: Path, place: Place, **options: Any) -> Replayer:  # noqa: ANN401  fields of ReplayConfig
    """Replay a journal to a hub, without delays by default."""
    zmq = options.pop("zmq", "")
    config = {"speed": math.inf, **options}
    replayer = Replayer(ReplayConfig(ReplayTarget(f"http://127.0.0.1:{place.port}", zmq), **config))
    await replayer.run(merge_by_time(list_segments(str(path))))
    return replayer


def with_zmq() -> Settings:
    return replace(settings(), zmq=ZmqSettings(listen=True, port=0))
