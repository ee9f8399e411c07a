"""Workers of an `App` that a client serves, with a real hub."""

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from fiveways.app import App, Context, Fail, Job
from fiveways.app import workers as app_workers
from fiveways.app.callbacks import CallbackChannel
from fiveways.client import registrations
from fiveways.client.connect import Connector, connect
from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer
from fiveways.model.messages import Call
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, ServerSettings, Settings
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test
from tests.support.scripted_hub import URLS, wait_for_state
from tests.support.waiting import until

PROTOCOLS = ("umq", "lrpm-json", "nq")
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def at(place: Place, protocol: str, **settings: object) -> Connector:
    return connect(URLS[protocol].replace("hub", f"127.0.0.1:{place.port}"), **settings)  # type: ignore[arg-type]


def eager(max_tries: int = 3) -> Settings:
    """Return settings of a hub that retries failed jobs immediately."""
    return settings(limits=LimitSettings(retry_delay=0.01, max_tries=max_tries))


async def reached(peer: Peer, name: str, state: str, count: int) -> None:
    """Wait until so many jobs of a queue are waiting, in progress or dead."""
    while (await queue_of(peer, name)).get(state) != count:  # noqa: ASYNC110  # the hub has no event for it
        await asyncio.sleep(0.01)


async def queue_of(peer: Peer, name: str) -> dict[str, int]:
    result: Any = await peer.call("hub.queues")
    return result.get(name, {})  # type: ignore[no-any-return]


async def emptied(peer: Peer, name: str) -> None:
    """Wait until no job of a queue waits or is in progress."""
    result = {"waiting": 1}
    while result.get("waiting") or result.get("given"):
        await asyncio.sleep(0.01)
        result = await queue_of(peer, name)


@dataclass
class Photo:
    path: str
    width: int = 100


@every_protocol
@async_test
async def test_jobs_reach_async_and_plain_functions(protocol: str) -> None:
    app, seen = App(), list[object]()

    @app.worker("photos")
    async def shrink(photo: Photo, context: Context) -> int:
        seen.append(photo)
        await context.publish("photos.done", photo.path)
        return photo.width

    @app.worker("mails")
    def send(job: Job) -> Photo:
        seen.append((job.data, threading.current_thread() is threading.main_thread()))
        return Photo("result")

    async with hub() as place, at(place, "umq") as other, at(place, protocol, app=app):
        async with other.subscribe("photos.done") as events:
            await other.push("photos", {"path": "a.png"})
            await other.push("photos", {"path": "b.png", "width": 5})
            assert [(await anext(events)).data, (await anext(events)).data] == ["a.png", "b.png"]
        await other.push("mails", {"to": "ann"})
        await until(lambda: len(seen) == 3)
        await emptied(other, "photos")
        await emptied(other, "mails")
        assert seen == [Photo("a.png"), Photo("b.png", 5), ({"to": "ann"}, False)]


@every_protocol
@async_test
async def test_failing_job_is_retried_and_completed(protocol: str) -> None:
    app, tries = App(), list[int]()

    @app.worker("jobs")
    async def work(number: int) -> None:
        tries.append(number)
        if len(tries) < 3:
            raise Fail("not yet")

    async with hub(eager()) as place, at(place, "umq") as other, at(place, protocol, app=app):
        await other.push("jobs", 7)
        await until(lambda: len(tries) == 3)
        await emptied(other, "jobs")
        assert (await queue_of(other, "jobs")).get("dead", 0) == 0


@every_protocol
@async_test
async def test_dead_job_has_the_text_of_a_fail_but_not_of_other_exceptions(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.worker("jobs")
    async def work(number: int) -> object:
        if number == 1:
            raise Fail("no such photo")
        if number == 2:
            raise RuntimeError("password in the text")
        return object()

    async with hub(eager(max_tries=1)) as place, at(place, "umq") as other, at(place, protocol, app=app):
        for data in (1, 2, 3, "four"):
            await other.push("jobs", data)
        await reached(other, "jobs", "dead", 4)
        result: Any = await other.call("hub.dead", {"queue": "jobs"})
        fail, hidden, unsendable, unfit = [each["error"] for each in result["jobs"]]
    assert fail.endswith("no such photo")
    assert "the worker failed (reference " in hidden
    assert "the worker ran, but its result cannot be sent (reference " in unsendable
    assert "bad arguments: the value is not of type int: Expected `int`, got `str`" in unfit
    assert "password" not in hidden
    (record,) = [each for each in caplog.records if "password" in str(each.exc_info)]
    assert record.getMessage().startswith("worker jobs failed (reference ")
    assert record.getMessage().split()[-1] in hidden


@async_test
async def test_show_errors_sends_the_exception_of_a_worker() -> None:
    app = App(show_errors=True)

    @app.worker("jobs")
    def work(number: int) -> None:
        raise RuntimeError(f"broken {number}")

    async with hub(eager(max_tries=1)) as place, at(place, "umq", app=app) as peer:
        await peer.push("jobs", 1)
        await reached(peer, "jobs", "dead", 1)
        result: Any = await peer.call("hub.dead", {"queue": "jobs"})
        assert "RuntimeError: broken 1" in result["jobs"][0]["error"]


@every_protocol
@async_test
async def test_concurrency_bounds_the_jobs_in_progress(protocol: str) -> None:
    app, now, done, release = App(), list[int](), list[int](), asyncio.Event()

    @app.worker("jobs", concurrency=3)
    async def work(number: int) -> None:
        now.append(number)
        await release.wait()
        done.append(number)

    async with hub() as place, at(place, protocol, app=app) as peer:
        for number in range(9):
            await peer.push("jobs", number)
        await until(lambda: len(now) >= 3)
        await peer.call("hub.ping")  # the hub would have delivered a fourth job before this response
        assert len(now) == 3
        assert (await queue_of(peer, "jobs"))["given"] == 3
        release.set()
        await until(lambda: len(done) == 9)
        assert sorted(done) == list(range(9))


@every_protocol
@async_test
async def test_worker_pulls_again_after_a_lost_connection(protocol: str) -> None:
    app, seen = App(), list[int]()

    @app.worker("jobs", concurrency=2)
    async def work(number: int) -> None:
        seen.append(number)

    async with hub() as place, at(place, "umq") as other, at(place, protocol, app=app, backoff=(0.01, 0.05)) as peer:
        await other.push("jobs", 1)
        await until(lambda: seen == [1])
        session = peer._core.reconnector.session
        assert session is not None
        session._link.abort()
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        for number in (2, 3, 4):
            await other.push("jobs", number)
        await until(lambda: sorted(seen) == [1, 2, 3, 4])
        await emptied(other, "jobs")


@every_protocol
@async_test
async def test_worker_pulls_from_a_restarted_hub_without_a_busy_loop(protocol: str) -> None:
    app, seen = App(), list[int]()

    @app.worker("jobs")
    async def work(number: int) -> None:
        seen.append(number)

    async with hub() as place:
        port = place.port
        async with at(place, protocol, app=app, backoff=(0.01, 0.05)) as peer:
            await peer.push("jobs", 1)
            await until(lambda: seen == [1])
            await place.server.stop()
            pulls, pull = [0], peer.pull

            def counted(queue: str) -> object:
                pulls[0] += 1
                return pull(queue)

            peer.pull = counted  # type: ignore[method-assign,assignment]
            await asyncio.sleep(0.2)
            assert pulls[0] <= 2
            async with hub(settings(server=ServerSettings(port=port, drain_timeout=1.0))):
                await wait_for_state(peer, ConnectionState.RECONNECTED)
                await peer.push("jobs", 2)
                await until(lambda: seen == [1, 2])


@async_test
async def test_job_of_a_lost_connection_is_redelivered() -> None:
    app, started, release = App(), list[int](), asyncio.Event()

    @app.worker("jobs")
    async def work(number: int) -> None:
        started.append(number)
        if len(started) == 1:
            await release.wait()

    async with hub(eager()) as place, at(place, "umq", app=app, backoff=(0.01, 0.05)) as peer:
        await peer.push("jobs", 7)
        await until(lambda: started == [7])
        session = peer._core.reconnector.session
        assert session is not None
        session._link.abort()
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        release.set()
        await until(lambda: started == [7, 7])
        await emptied(peer, "jobs")


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [text for text in texts if "worker=worker jobs" in text]


@async_test
async def test_denied_queue_is_logged_once_and_retried_with_backoff(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app_workers, "FIRST_BACKOFF", 0.02)
    app = App()
    app.worker("jobs", concurrency=4)(lambda data: data)
    async with hub(settings(auth=AuthSettings(call=("hub.push",)))) as place, at(place, "umq", app=app):
        await until(lambda: bool(_warnings(caplog)))
        await asyncio.sleep(0.2)  # several retries of four worker slots
    (text,) = _warnings(caplog)
    assert text.startswith("pull of a job failed; retrying with backoff worker=worker jobs error=")


@every_protocol
@async_test
async def test_close_finishes_a_job_in_progress_and_withdraws_pulls(protocol: str) -> None:
    app, done = App(), list[int]()

    @app.worker("jobs", concurrency=2)
    async def work(number: int) -> None:
        await asyncio.sleep(0.1)
        done.append(number)

    async with hub() as place, at(place, "umq") as other:
        async with at(place, protocol, app=app) as peer:
            await peer.push("jobs", 1)
            await reached(other, "jobs", "given", 1)
        assert done == [1]
        await emptied(other, "jobs")
        await other.push("jobs", 2)
        assert (await other.pull("jobs", timeout=60.0)).data == 2


@every_protocol
@pytest.mark.parametrize("kind", ["async", "plain"])
@async_test
async def test_close_returns_a_job_that_does_not_finish(
    protocol: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrations, "WORKER_DRAIN_TIMEOUT", 0.02)
    app, started, release = App(), list[int](), threading.Event()

    async def slow(number: int) -> None:
        started.append(number)
        await asyncio.sleep(60)

    def plain(number: int) -> None:
        started.append(number)
        release.wait(60)

    app.worker("jobs")(slow if kind == "async" else plain)
    try:
        async with hub(eager()) as place, at(place, "umq") as other:
            async with at(place, protocol, app=app):
                await other.push("jobs", 1)
                await until(lambda: started == [1])
            assert (await other.pull("jobs", timeout=60.0)).data == 1
    finally:
        release.set()


@async_test
async def test_worker_function_may_close_its_connection() -> None:
    app, closed = App(), asyncio.Event()

    async with hub() as place, at(place, "umq") as other:

        @app.worker("jobs")
        async def work(_: str) -> None:
            await peer.close()
            closed.set()

        peer = await at(place, "umq", app=app)
        await other.push("jobs", "stop")
        await closed.wait()
        assert (await other.pull("jobs", timeout=60.0)).data == "stop"


@async_test
async def test_job_that_arrives_with_the_cancellation_of_its_pull_is_returned() -> None:
    async with hub() as place, at(place, "nq") as worker, at(place, "umq") as other:
        pull = asyncio.ensure_future(worker.pull("jobs")._pull())
        await reached(other, "jobs", "waiting", 0)
        waiting_pull = worker._core.callbacks._receivers["1"]
        called = waiting_pull.handle_call

        def called_and_cancelled(channel: CallbackChannel, call: Call) -> None:
            called(channel, call)
            pull.cancel()

        waiting_pull.handle_call = called_and_cancelled  # type: ignore[method-assign]
        await other.push("jobs", 1)
        with pytest.raises(asyncio.CancelledError):
            await pull
        assert (await other.pull("jobs", timeout=60.0)).data == 1
