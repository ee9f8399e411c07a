"""Workers of an `App` in the hub's process."""

import asyncio
from typing import Any

import pytest

from fiveways.app import App, Context, Job
from fiveways.client.connect import Connector, connect
from fiveways.client.peer import Peer
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import ServerSettings
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test


def at(place: Place) -> Connector:
    return connect(f"umq+ws://127.0.0.1:{place.port}")


async def jobs_of(peer: Peer, name: str) -> dict[str, int]:
    queues: Any = await peer.call("hub.queues")
    return queues.get(name, {})  # type: ignore[no-any-return]


async def wait_for_state(peer: Peer, name: str, state: str, count: int) -> None:
    """Wait until this many jobs of a queue have a state: waiting, given or dead."""
    while (await jobs_of(peer, name)).get(state) != count:  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.01)


@async_test
async def test_jobs_reach_workers_of_an_application_in_the_hub() -> None:
    app, seen = App(), asyncio.Queue[object]()

    @app.worker("numbers")
    async def numbers(number: int, context: Context) -> None:
        with pytest.raises(RuntimeError, match="the caller is unknown"):
            _ = context.caller
        seen.put_nowait((number, await context.call("double", number)))

    @app.worker("texts", concurrency=2)
    def texts(context: Context, job: Job) -> None:
        context.wait(context.publish("texts", job.data))

    @app.method
    async def double(number: int) -> int:
        return 2 * number

    async with hub(app=app) as place, at(place) as peer:
        await peer.push("numbers", 4)
        assert await seen.get() == (4, 8)
        async with peer.subscribe("texts") as events:
            await peer.push("texts", "hello")
            assert (await anext(events)).data == "hello"
        await wait_for_state(peer, "texts", "given", 0)
        assert sum((await jobs_of(peer, "numbers")).values()) == 0


@async_test
async def test_failing_job_in_the_hub_is_retried_and_then_dead() -> None:
    app, tries = App(), list[int]()

    @app.worker("numbers")
    async def numbers(number: int) -> None:
        tries.append(number)
        raise RuntimeError("broken")

    eager = settings(limits=LimitSettings(retry_delay=0.01, max_tries=3))
    async with hub(eager, app=app) as place, at(place) as peer:
        await peer.push("numbers", 4)
        await wait_for_state(peer, "numbers", "dead", 1)
        dead: Any = await peer.call("hub.dead", {"queue": "numbers"})
        assert "the worker failed (reference " in dead["jobs"][0]["error"]
        assert tries == [4, 4, 4]


@async_test
async def test_stopping_hub_lets_a_job_finish_within_the_drain_timeout() -> None:
    app, started, done = App(), asyncio.Event(), list[int]()

    @app.worker("numbers")
    async def numbers(number: int) -> None:
        started.set()
        await asyncio.sleep(0.1)
        done.append(number)

    patient = settings(server=ServerSettings(port=0, drain_timeout=60.0))
    async with hub(patient, app=app) as place, at(place) as peer:
        await peer.push("numbers", 4)
        await started.wait()
    assert done == [4]


@async_test
async def test_stopping_hub_cancels_a_job_after_the_drain_timeout(caplog: pytest.LogCaptureFixture) -> None:
    app, started, cancelled = App(), asyncio.Event(), list[int]()

    @app.worker("numbers", concurrency=2)
    async def numbers(number: int) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async with hub(app=app) as place, at(place) as peer:
        await peer.push("numbers", 4)
        await started.wait()
    assert cancelled == [4]
    assert not [each for each in caplog.records if each.name == "fiveways.app"]
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("worker ")]
