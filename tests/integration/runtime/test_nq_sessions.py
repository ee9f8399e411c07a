"""NQ sessions in trouble: dismissed peers, half-closed connections, limits."""

import asyncio
import json

import cbor2
import pytest

from fiveways import Fail
from fiveways.app import App
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from tests.integration.runtime.test_nq_http import QUIET, SOON, TOKENS
from tests.support.nq_peers import ask, linked, packed, posters, served
from tests.support.raw_peers import hub, settings
from tests.support.running import async_test
from tests.support.waiting import until


@async_test
async def test_goodbye_of_a_callee_does_not_affect_the_caller() -> None:
    async with hub() as place, posters(place.port, 2) as (worker, caller):
        await worker.post(ask("k1", "hub-register", "work"))
        await worker.post({"e": {"type": "sys", "fatal": True, "note": "goodbye"}})
        answer = await caller.raw(packed(ask("k1", "work", 1)))
        assert answer.status == 200


@async_test
async def test_cbor_is_accepted_and_answered() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        callee = await place.peer("/lrpm")
        callee.binary(cbor2.dumps([2, None, {}]))
        await callee.data()
        callee.binary(cbor2.dumps([40, 300, "hub.register", {"name": "work"}, {}]))
        await callee.data()
        await peer.post(ask("k1", "work"))
        number = cbor2.loads(await callee.data())[1]
        twice = b"\xa2\x01\x02\x01\x03"  # a map with two equal keys
        callee.binary(bytes([0x86, 20, 24, 40]) + cbor2.dumps(number) + cbor2.dumps("app.err.x") + twice + b"\xa0")
        (end,) = await peer.post(wait=1)
        assert "e" in end


@async_test
async def test_error_of_an_application_may_contain_any_text() -> None:
    app = App()

    @app.method("work")
    async def work() -> None:
        raise Fail("no file caf\udce9")

    async with hub(settings(), app) as place, posters(place.port) as (peer,):
        await peer.post(ask("k1", "work"))
        assert "e" in (await peer.post(wait=1))[0]


@async_test
async def test_too_large_failure_is_shortened() -> None:
    async with hub(settings(limits=LimitSettings(max_text=3000))) as place, posters(place.port) as (peer,):
        callee = await place.lrpm()
        callee.text('[40,300,"hub.register",{"name":"work"},{}]')
        await callee.heard()
        await peer.post(ask("k1", "work"))
        number = json.loads(await callee.heard())[1]
        callee.text(json.dumps([20, 40, number, "app.err.x", "x" * 2900, {}]))
        assert "e" in (await peer.post(wait=1))[0]


@async_test
async def test_sessions_above_the_limit_are_refused() -> None:
    async with hub(settings(limits=LimitSettings(max_resumable=4))) as place:
        for number in range(6):
            async with posters(place.port) as (peer,):
                answer = await peer.raw(packed(ask("k1", data=1)))
            assert answer.status == (200 if number < 2 else 503)
        assert answer.body.endswith(b"the share of 2 for address 127.0.0.1 is used up\n")
        assert len(place.server.resumable_sessions) == 2


@async_test
async def test_sessions_above_the_limit_are_refused_over_websocket() -> None:
    async with hub(settings(limits=LimitSettings(max_resumable=2))) as place:
        async with posters(place.port) as (peer,):
            await peer.raw(packed(ask("k1", data=1)))
        await until(lambda: place.server._port.connections() == 0)
        wire = await place.peer("/nq")
        frames = []
        try:
            while (frame := await asyncio.wait_for(wire.frames.get(), SOON)) is not None:
                frames.append(frame)
        finally:
            wire.leave()
        assert "goodbye" in str(frames) or "denied" in str(frames)


@async_test
async def test_wrong_token_over_websocket_gets_an_error_and_a_close() -> None:
    async with hub(settings(auth=TOKENS)) as place:
        wire = await place.peer("/nq", Authorization="Bearer wrong")
        frames = []
        try:
            while (frame := await asyncio.wait_for(wire.frames.get(), SOON)) is not None:
                frames.append(frame)
        finally:
            wire.leave()
        assert "denied" in str(frames)


@async_test
async def test_missing_token_is_401_with_anonymous_never() -> None:
    async with hub(settings(auth=TOKENS)) as place, posters(place.port) as (peer,):
        assert (await peer.raw(packed(ask("k1")))).status == 401
        assert len(place.server.resumable_sessions) == 0


@async_test
async def test_unauthenticated_session_is_forgotten_soon() -> None:
    auth = AuthSettings(anonymous="never", login_timeout=0.1, identity=(IdentitySettings("ann", token=Secret("x")),))
    async with hub(settings(auth=auth)) as place:
        for _ in range(20):
            async with posters(place.port) as (peer,):
                await peer.raw(b"[]")
        await until(lambda: len(place.server.resumable_sessions) == 0)


@async_test
async def test_unsent_packets_are_bounded() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        for number in range(40):
            await peer.post(ask(f"k{number}", data="x" * 1_000_000))
        (session,) = place.server.resumable_sessions._by_id.values()
        for _ in range(4):
            await peer.post(*({"t": "hub-echo", "p": f"k{number}"} for number in range(40)))
        assert sum(len(each.payload) for each in session._unsent_packets) < 64 << 20


@async_test
async def test_reconnected_peer_gets_all_its_answers() -> None:
    async with hub() as place, posters(place.port) as (poster,):
        for number in range(40):
            await poster.post(ask(f"k{number}", data="x" * 1_000_000))
        peer = await linked(place, poster.peer)
        ids: set[object] = set()
        while len(ids) < 40:
            ids.add((await peer.hear())["i"])
        assert ids == {f"k{number}" for number in range(40)}
        peer.cut()


@async_test
async def test_new_connection_sends_the_peer_id_before_unsent_packets() -> None:
    async with hub() as place, posters(place.port) as (poster,):
        callee = await served(place)
        await poster.post(ask("k1", "work", 1))
        head, *_ = (await callee.heard()).partition("\n")
        callee.text(f"R{head[1:]}\n2")
        (session,) = place.server.resumable_sessions._by_id.values()
        await until(session._has_output)  # like a poll that was aborted
        peer = await linked(place, poster.peer)
        message = await peer.until("d")
        peer.cut()
        callee.leave()
        assert (message["i"], message["d"]) == ("k1", 2)


@async_test
async def test_query_with_many_fields_is_accepted() -> None:
    async with hub() as place:
        wire = await place.peer("/nq?" + "&".join(f"a{n}=1" for n in range(9)))
        first = await asyncio.wait_for(wire.frames.get(), SOON)
        wire.leave()
        assert first is not None


@pytest.mark.parametrize("before", ['prefs={"a":1}', "path=x", "a[b]=1", "a b=1", "flag"])
@async_test
async def test_other_cookies_do_not_hide_the_peer_cookie(before: str) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        await peer.post()
        mine, peer.peer = peer.peer, ""
        assert (await peer.raw(b"[]", Cookie=f"{before}; fiveways-nq={mine}")).headers["nq-peer"] == mine


@async_test
async def test_post_is_answered_although_an_old_connection_seems_alive() -> None:
    async with hub() as place, posters(place.port) as (poster,):
        old = await linked(place)
        old.wire.ws.underlying_transport.pause_reading()
        poster.peer = old.peer
        try:
            assert (await poster.post(ask("k1", data=1), wait=2))[0]["d"] == 1
        finally:
            old.cut()


@async_test
async def test_new_connection_releases_a_waiting_poll() -> None:
    async with hub() as place, posters(place.port) as (poster,):
        await poster.post()
        poll = asyncio.ensure_future(poster.post(wait=10))
        await asyncio.sleep(QUIET)
        peer = await linked(place, poster.peer)
        done, _ = await asyncio.wait([poll], timeout=SOON)
        peer.cut()
        poll.cancel()
        assert done
