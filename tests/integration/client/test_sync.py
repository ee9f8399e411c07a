"""The blocking client."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager

import pytest

from fiveways.app.app import App
from fiveways.app.events import Event
from fiveways.client.connection_state import ConnectionState
from fiveways.client.loop_thread import LoopThread
from fiveways.client.sync import SyncPeer, connect_sync
from fiveways.client.urls import BadUrl
from fiveways.errors import CallFailed, CallTimeout, ConnectionLost, NotExecuted, Reason
from tests.support.raw_peers import Place, hub
from tests.support.scripted_hub import PROTOCOLS, URLS

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@contextmanager
def hub_in_a_thread() -> Iterator[Place]:
    loop = LoopThread()
    running = hub()
    place = loop.run(running.__aenter__())
    try:
        yield place
    finally:

        async def leave() -> None:
            await running.__aexit__(None, None, None)

        loop.stop(leave)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with hub_in_a_thread() as there:
        yield there


def at(place: Place, protocol: str = "lrpm-json", **settings: object) -> SyncPeer:
    url = URLS[protocol].replace("hub", f"127.0.0.1:{place.port}")
    return connect_sync(url, **settings)  # type: ignore[arg-type]


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def count(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


@every_protocol
def test_all_methods_of_the_client_without_await(place: Place, protocol: str) -> None:
    with at(place, protocol) as peer, at(place, protocol) as other:
        assert peer.state is ConnectionState.CONNECTED
        assert peer.protocol == protocol
        assert protocol[:3] in repr(peer)
        assert peer.call("hub.ping") == "pong"
        other.register("math.add", add)
        assert peer.call("math.add", [2, 3], timeout=5.0) == 5
        assert peer.discover("math.add").doc == "Add two numbers."
        other.unregister("math.add")
        with pytest.raises(NotExecuted):
            peer.call("math.add", [2, 3])
        other.register("count", count)
        assert list(peer.stream("count", [3])) == [0, 1, 2]
        assert peer.call_reply("count", [1]).value == [0]
        token = other.callback(add)
        assert peer.call(f"callback.{token}", [1, 1]) == 2
        peer.vars.set("language", "cs")
        assert other.vars.get("language", peer=peer.session) == "cs"
        peer.vars.unset("language")
        assert peer.vars.get("language") is None
        assert dict(peer.vars.theirs) == {}
        assert peer.push(f"work-{protocol}", 7) == 1
        with other.pull(f"work-{protocol}") as job:
            assert (job.data, job.attachments()) == (7, [])
        other.unregister("count")


@every_protocol
def test_events_are_read_in_a_for_loop(place: Place, protocol: str) -> None:
    topic = f"news.{protocol[-4:]}"
    with at(place, protocol) as peer, peer.subscribe(topic) as events:
        for number in range(5):
            peer.publish(topic, number, attachments=[b"photo"] if number == 0 else [])
        first = events.next()
        assert first is not None
        assert (first.topic, first.data, first.missed) == (topic, 0, 0)
        assert first.attachments() == [b"photo"]
        got = []
        for event in events:
            got.append(event.data)
            if event.data == 4:
                break
        assert got == [1, 2, 3, 4]
        assert events.next(timeout=0.01) is None
        assert not events.is_over
        peer.close_topic(topic)
        assert list(events) == []
        assert events.is_over
        assert events.restored == 0


def test_job_can_be_failed_or_done_explicitly(place: Place) -> None:
    with at(place) as peer:
        peer.push("hand", 1)
        with pytest.raises(RuntimeError), peer.pull("hand"):
            raise RuntimeError("broken")
        job = peer.pull("hand")
        job.fail("not now")
        peer.pull("hand").done("finished")
        with pytest.raises(CallTimeout):
            peer.pull("hand", timeout=0.01)


def test_application_is_served(place: Place) -> None:
    app = App()
    app.method("sync.add")(add)
    with at(place, app=app) as peer:
        assert peer.call("sync.add", [1, 2]) == 3
    with at(place) as peer:
        peer.serve(app)
        assert peer.call("sync.add", [1, 2]) == 3


def test_function_in_a_thread_may_use_its_own_client(place: Place) -> None:
    with at(place, show_errors=True) as peer:

        def twice(x: int) -> object:
            return peer.call("hub.echo", 2 * x)

        async def wrong() -> object:
            return peer.call("hub.echo", 1)

        peer.register("sync.twice", twice)
        assert peer.call("sync.twice", [21]) == 42
        peer.register("sync.wrong", wrong)
        with pytest.raises(CallFailed, match="await its methods"):
            peer.call("sync.wrong")


def test_blocking_client_works_in_a_running_event_loop(place: Place) -> None:
    async def notebook() -> object:
        with at(place) as peer:
            return peer.call("hub.ping")

    assert asyncio.run(notebook()) == "pong"


def test_blocking_client_can_be_shared_by_threads(place: Place) -> None:
    answers = []
    with at(place) as peer:

        def work(number: int) -> None:
            answers.append(peer.call("hub.echo", number))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(answers, key=str) == list(range(8))


def interrupted(wait: Callable[[], object], may_begin: threading.Event) -> None:
    """Interrupt the main thread while it waits."""

    def interrupt() -> None:
        may_begin.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            wait()
    finally:
        may_begin.set()
        thread.join()


def test_interrupt_ends_the_wait_but_not_the_connection(place: Place) -> None:
    started, stopped = threading.Event(), threading.Event()

    async def slow() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with at(place) as peer, at(place) as other:
        other.register("sync.slow", slow)
        interrupted(lambda: peer.call("sync.slow"), started)
        assert stopped.wait(20.0)
        assert peer.call("hub.ping") == "pong"
        with peer.subscribe("sync.news") as events:
            reading = threading.Event()
            next_batch = events._subscription.next_batch

            async def signalling_batch(limit: int = 100) -> list[Event]:
                reading.set()
                return await next_batch(limit)

            events._subscription.next_batch = signalling_batch  # type: ignore[method-assign]
            interrupted(lambda: list(events), reading)
            peer.publish("sync.news", 1)
            event = events.next()
            assert event is not None
            assert event.data == 1


def test_closed_client_raises_connection_lost(place: Place) -> None:
    peer = at(place)
    states = peer.states()
    assert next(states).state is ConnectionState.CONNECTED
    peer.close()
    peer.close()
    assert peer.state is ConnectionState.CLOSED
    with pytest.raises(ConnectionLost):
        peer.call("hub.ping")
    with pytest.raises(ConnectionLost):
        next(states)
    with pytest.raises(ConnectionLost):
        peer.subscribe("news")


def test_garbage_collected_client_is_closed(place: Place) -> None:
    peer = at(place)
    session = peer.session
    thread = peer._loop_thread._thread
    del peer
    gc.collect()
    thread.join(20.0)
    assert not thread.is_alive()
    with at(place) as other, pytest.raises(NotExecuted) as caught:
        other.vars.get("language", peer=session)
    assert caught.value.reason is Reason.BAD_ARGUMENTS


def test_failed_connect_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ConnectionLost):
        connect_sync("umq+ws://127.0.0.1:1")
    with pytest.raises(BadUrl):
        connect_sync("ws://127.0.0.1")
    assert threading.active_count() == before


def test_end_of_the_hub_is_reported() -> None:
    with hub_in_a_thread() as place:
        peer = at(place, reconnect=False)
    with peer:
        assert peer.wait_closed().state is ConnectionState.CLOSED
        assert [status.state for status in peer.states()] == [ConnectionState.CLOSED]


def test_stop_in_the_event_loop_fails_waiting_threads() -> None:
    loop = LoopThread()
    errors = []

    def wait() -> None:
        try:
            loop.run(asyncio.Event().wait())
        except (ConnectionLost, CancelledError) as exc:
            errors.append(exc)

    waits = threading.Thread(target=wait)
    waits.start()

    async def nothing() -> None: ...

    async def end() -> None:
        loop.stop(nothing)

    loop.run(end())
    loop._thread.join(20.0)
    waits.join(20.0)
    assert len(errors) == 1
    loop.stop(nothing)
