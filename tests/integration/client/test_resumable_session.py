"""Resumable NQ sessions: lost links, restarted hubs and refusals."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from fiveways.app.context import Context
from fiveways.client.connect import Connector, connect
from fiveways.client.connection_state import ConnectionState
from fiveways.client.peer import Peer
from fiveways.client.resumable_session import ResumableSession
from fiveways.client.urls import parse
from fiveways.errors import CallLost, CallTimeout, ConnectionLost, Refused
from fiveways.model.messages import Call, Goodbye, Result
from fiveways.settings.sections import ServerSettings
from fiveways.transports.base import Link, Receiver, SpoolFactory
from fiveways.transports.http_client import HttpLink
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Value
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test
from tests.support.scripted_hub import RESUMABLE, URLS, ScriptedHub, wait_for_state

every_transport = pytest.mark.parametrize("transport", RESUMABLE)


def at(place: Place, transport: str, **options: object) -> Connector:
    url = URLS[transport].replace("hub", f"127.0.0.1:{place.port}")
    return connect(url, backoff=(0.001, 0.05), **options)  # type: ignore[arg-type]


def resumable_session(peer: Peer) -> ResumableSession:
    session = peer._reconnector._resumable
    assert isinstance(session, ResumableSession)
    return session


def cut(peer: Peer) -> None:
    """Close all sockets of a client, as a network failure does."""
    link = resumable_session(peer)._link
    if isinstance(link, HttpLink):
        for connection in (link._post_connection, link._poll_connection):
            if connection._streams is not None:
                connection._streams[1].transport.abort()
    else:
        link.abort()


class Service:
    """A method that ends when the test allows it, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def work(self, n: int) -> int:
        self.runs += 1
        self.began.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return n * 2


@every_transport
@async_test
async def test_progress_arrives_during_the_call(transport: str) -> None:
    notes: list[tuple[object, str]] = []
    heard = asyncio.Event()

    def progress(value: object, text: str) -> None:
        notes.append((value, text))
        heard.set()

    async def work(context: Context) -> str:
        context.progress({"done": 0.5}, text="half of it")
        await heard.wait()
        return "done"

    async with hub() as place, at(place, transport) as caller, at(place, transport) as callee:
        await callee.register("work", work)
        assert await caller.call("work", progress=progress) == "done"
    assert notes == [({"done": 0.5}, "half of it")]


@every_transport
@async_test
async def test_lost_link_neither_loses_nor_repeats_calls(transport: str) -> None:
    service = Service()
    async with hub() as place, at(place, transport) as caller, at(place, transport) as callee:
        await callee.register("work", service.work)
        call = asyncio.create_task(caller.call("work", [21]))
        await service.began.wait()
        before = caller.session
        cut(caller)
        cut(callee)
        await asyncio.sleep(0.05)
        service.go_on.set()
        assert await call == 42
        assert service.runs == 1
        assert caller.session == before
        assert await caller.call("work", [1]) == 2


@every_transport
@async_test
async def test_response_waits_for_the_link_of_its_caller(transport: str) -> None:
    service = Service()
    async with hub() as place, at(place, transport) as caller, at(place, "nq") as callee:
        await callee.register("work", service.work)
        call = asyncio.create_task(caller.call("work", [21]))
        await service.began.wait()
        open_link, refused = caller._reconnector._open_link, asyncio.Event()

        async def nobody(*_: object, **__: object) -> object:
            refused.set()
            raise ConnectionRefusedError("nobody listens")

        caller._reconnector._open_link = nobody
        resumable_session(caller)._link.abort()
        await refused.wait()
        service.go_on.set()
        await asyncio.sleep(0.05)
        assert not call.done()
        caller._reconnector._open_link = open_link
        assert await call == 42
        assert service.runs == 1


@every_transport
@async_test
async def test_subscriptions_and_callbacks_survive_a_lost_link(transport: str) -> None:
    async def twice(n: int) -> int:
        return 2 * n

    async with hub() as place, at(place, transport) as one, at(place, "nq") as other:
        token = await one.callback(twice)
        async with one.subscribe("news") as events:
            resumable_session(one)._link.abort()
            await other.publish("news", 1)  # with or without a link
            await wait_for_state(one, ConnectionState.RECONNECTED)
            await other.publish("news", 2)
            # Packets that were lost with the link are retransmitted later.
            assert {(await anext(events)).data for _ in range(2)} == {1, 2}
            assert events.restored == 0
        assert await other.call(f"callback.{token}", [21]) == 42


@every_transport
@async_test
async def test_call_survives_a_restart_of_the_hub(transport: str) -> None:
    service = Service()
    gate = asyncio.Event()
    async with hub() as place, at(place, transport) as caller, at(place, transport) as callee:
        await callee.register("work", service.work)
        call = asyncio.create_task(caller.call("work", [21]))
        await service.began.wait()
        open_link = caller._reconnector._open_link

        async def later(*args: object, **kwargs: object) -> object:
            await gate.wait()
            return await open_link(*args, **kwargs)  # type: ignore[arg-type]

        caller._reconnector._open_link = later
        before = caller.session
        await place.server.stop()
        async with hub(settings(server=ServerSettings(port=place.port, drain_timeout=0.1))):
            await wait_for_state(callee, ConnectionState.RECONNECTED)
            service.go_on.set()
            gate.set()
            assert await call == 42
            assert caller.session != before
            assert service.runs == 2  # the first hub can no longer get responses
        await asyncio.sleep(0)


@async_test
async def test_call_unknown_to_a_restarted_hub_raises_call_lost() -> None:
    service = Service()
    async with hub() as place, at(place, "nq") as caller:
        async with at(place, "nq") as callee:
            await callee.register("work", service.work)
            call = asyncio.create_task(caller.call("work", [21]))
            await service.began.wait()
            await place.server.stop()
        async with hub(settings(server=ServerSettings(port=place.port, drain_timeout=0.1))):
            with pytest.raises(CallLost, match="it may have run"):
                await call


@async_test
async def test_session_resumes_from_http_to_websocket() -> None:
    service = Service()
    async with hub() as place, at(place, "nq-http") as caller, at(place, "nq") as callee:
        await callee.register("work", service.work)
        async with caller.subscribe("news") as events:
            call = asyncio.create_task(caller.call("work", [21]))
            await service.began.wait()
            session, before = resumable_session(caller), caller.session
            address = parse(f"nq+ws://127.0.0.1:{place.port}")
            session._settings = replace(session._settings, address=address)
            caller._reconnector._open_link = open_websocket
            session._link.abort()
            await wait_for_state(caller, ConnectionState.RECONNECTED)
            service.go_on.set()
            assert await call == 42
            assert session._link.transport == "ws"
            assert caller.session == before
            await callee.publish("news", 1)
            assert (await anext(events)).data == 1
        assert len(place.server.resumable_sessions) == 2


@every_transport
@async_test
async def test_cancelled_task_cancels_the_call(transport: str) -> None:
    service = Service()
    async with hub() as place, at(place, transport) as caller, at(place, transport) as callee:
        await callee.register("work", service.work)
        with pytest.raises(CallTimeout, match=r"^work did not answer within 1\.5 s$"):
            await caller.call("work", [1], timeout=1.5)
        await service.cancelled.wait()


@every_transport
@async_test
async def test_close_withdraws_registrations(transport: str) -> None:
    service = Service()
    async with hub() as place, at(place, transport) as one:
        async with at(place, transport) as other:
            await other.register("work", service.work)
            await other.subscribe("news")
            call = asyncio.create_task(one.call("work", [3]))
            await service.began.wait()
        service.go_on.set()
        assert (await one.discover()).methods == ()
        await one.register("work", service.work)  # and the next callee gets the call
        assert await call == 6


@every_transport
@async_test
async def test_close_fails_calls_that_wait_for_a_link(transport: str) -> None:
    service = Service()
    async with hub() as place, at(place, "nq") as callee:
        await callee.register("work", service.work)
        async with at(place, transport) as caller:
            call = asyncio.create_task(caller.call("work", [21]))
            await service.began.wait()

            async def nobody(*_: object, **__: object) -> object:
                raise ConnectionRefusedError("nobody listens")

            caller._reconnector._open_link = nobody
            resumable_session(caller)._link.abort()
            await wait_for_state(caller, ConnectionState.RECONNECTING)
        with pytest.raises(CallLost):
            await call
        service.go_on.set()


@async_test
async def test_without_reconnect_a_lost_link_fails_calls() -> None:
    service = Service()
    async with hub() as place, at(place, "nq") as callee, at(place, "nq", reconnect=False) as caller:
        await callee.register("work", service.work)
        call = asyncio.create_task(caller.call("work", [21]))
        await service.began.wait()
        cut(caller)
        with pytest.raises(CallLost):
            await call
        with pytest.raises(ConnectionLost):
            await caller.call("work", [21])
        service.go_on.set()


class NqHub(ScriptedHub):
    """A scripted hub that assigns peer ids."""

    def __init__(self) -> None:
        super().__init__("nq")
        self.shown: list[tuple[str, object]] = []
        self.is_denying = False

    async def open_link(
        self,
        url: str,
        receive: Callable[[Link], Receiver],
        /,
        *,
        limits: Limits,
        spools: SpoolFactory | None,
        subprotocol: str,
        headers: object,
        timeout: float,  # noqa: ASYNC109
    ) -> object:
        self.shown.append((url, headers))
        link = await super().open_link(
            url, receive, limits=limits, spools=spools, subprotocol=subprotocol, headers=None, timeout=timeout
        )
        session = self.sessions.get_nowait()
        if self.is_denying:
            session.say(Goodbye("go away", denied=True))
        else:
            session.talk.send_identity()  # type: ignore[attr-defined]
            session.flush()
        self.sessions.put_nowait(session)
        return link


@async_test
async def test_goodbye_with_a_refusal_raises_refused() -> None:
    hub = NqHub()
    hub.is_denying = True
    with pytest.raises(Refused, match="go away"):
        await hub.connecting()


@async_test
async def test_refused_resumption_fails_all_calls() -> None:
    hub = NqHub()
    async with hub.client() as (peer, session):
        call = asyncio.create_task(peer.call("math.add"))
        await session.next(Call)
        hub.is_denying = True
        session.drop()
        with pytest.raises(CallLost, match="go away"):
            await call
        assert peer.state is ConnectionState.CLOSED
    assert hub.shown == [("ws://hub:7500/nq", {}), ("ws://hub:7500/nq", {"NQ-Peer": "client"})]


@async_test
async def test_request_is_retransmitted_on_the_next_link() -> None:
    hub = NqHub()
    async with hub.client() as (peer, session):
        call = asyncio.create_task(peer.call("math.add", [2, 3]))
        first = await session.next(Call)
        session.drop()
        following = await hub.sessions.get()
        again = await following.next(Call)
        assert again.id == first.id
        following.say(Result(again.id, Value(5)))
        assert await call == 5
