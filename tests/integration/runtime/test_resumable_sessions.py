"""NQ sessions end with their connection unless they hold state, and their number is limited."""

import asyncio
import logging
import re

import pytest

import fiveways
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from tests.support.nq_peers import Message, Poster, ask, linked, packed, posters
from tests.support.raw_peers import Place, http, hub, settings
from tests.support.running import async_test
from tests.support.waiting import until

ADA = AuthSettings(identity=(IdentitySettings("ada", token=Secret("of-ada")),))


def session_count(place: Place) -> int:
    """Return the number of resumable sessions."""
    assert place.server.exchange.hub.stats()["resumable_sessions"] == len(place.server.resumable_sessions)
    return len(place.server.resumable_sessions)


@async_test
async def test_posts_without_a_cookie_leave_no_sessions() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        for body in (b"[]", b"{}", b"x", packed({"e": {"type": "sys", "note": "hello"}}), packed({"i": "k", "o": 1})):
            peer.peer = ""
            assert re.fullmatch("[0-9a-f]{56}", (await peer.raw(body)).headers["nq-peer"])
            assert session_count(place) == 0
        await peer.raw(b"[]", "/nq?wait=0.01")
        assert session_count(place) == 0


@async_test
async def test_connections_without_requests_leave_no_sessions() -> None:
    async with hub() as place:
        for _ in range(5):
            peer = await linked(place)
            peer.say({"e": {"type": "sys", "note": "hello"}})
            await peer.hear()
            peer.cut()
        await until(lambda: session_count(place) == 0)
        assert place.server.exchange.hub.stats()["connected_sessions"] == 0


@pytest.mark.parametrize(
    ("target", "data"),
    [
        ("hub-ping", None),
        ("hub-register", "work"),
        ("hub-subscribe", {"topic": "news", "id": "n"}),
        ("hub-set", {"name": "v", "value": 1}),
        ("hub-callback", "x"),
        ("hub-pull", {"queue": "q", "callback": "x"}),
    ],
)
@async_test
async def test_session_with_stored_state_stays(target: str, data: object) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        (answer,) = await peer.post(ask("k1", target, data))
        assert session_count(place) == 1
        id_before = peer.peer
        await peer.post({"i": answer["a"]})
        assert (session_count(place), peer.peer) == (1, id_before)
        assert place.server.exchange.hub.stats()["connected_sessions"] == 0


@async_test
async def test_peer_reconnects_by_the_id_of_an_empty_session() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        hello = {"e": {"type": "sys", "fatal": False, "note": "hello"}}
        (first,) = await peer.post(hello)
        before = peer.peer
        assert session_count(place) == 0
        (again,) = await peer.post(hello)
        assert (peer.peer, again) == (before, first)  # the same id and the same run: nothing was lost
        (answer,) = await peer.post(ask("k1", data=1))
        assert (answer["d"], peer.peer) == (1, before)
        assert answer["a"].startswith(f"{first['e']['args'][1]}-")


@async_test
async def test_identifiers_are_unique_across_sessions_of_one_id() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        poll = {"t": "hub-echo", "p": "k"}  # answered with an identifier, and nothing is stored
        minted = [(await peer.post(poll))[0]["a"] for _ in range(3)]
        assert session_count(place) == 0
        assert len(set(minted)) == 3


@async_test
async def test_id_of_another_identity_is_replaced() -> None:
    async with hub(settings(auth=ADA)) as place, posters(place.port, 2) as (ada, other):
        ada.headers["Authorization"] = "Bearer of-ada"
        await ada.post()
        other.peer = ada.peer
        await other.post()
        assert other.peer != ada.peer


@pytest.mark.parametrize("scheme", ["nq+http", "nq+ws"])
@async_test
async def test_client_continues_with_the_id_of_an_ended_session(scheme: str) -> None:
    async with hub() as place, fiveways.connect(f"{scheme}://127.0.0.1:{place.port}") as peer:
        session = peer.session
        for connection in place.server.resumable_sessions.connections:
            connection.link.abort()
        await until(lambda: not place.server.resumable_sessions.connections)
        assert await peer.call("hub.echo", 1, idempotent=True) == 1
        assert peer.session == session


@async_test
async def test_anonymous_peers_leave_sessions_for_authenticated_ones(caplog: pytest.LogCaptureFixture) -> None:
    limits = LimitSettings(max_resumable=8, share=1.0, anonymous_share=0.75)
    async with hub(settings(auth=ADA, limits=limits)) as place:
        with caplog.at_level(logging.WARNING):
            async with posters(place.port, 20) as flood:
                for each in flood:
                    await each.raw(packed(ask("k1", data=1)))
        assert session_count(place) == 6
        assert len([each for each in caplog.messages if "session refused by a limit" in each]) == 10  # of 14
        async with posters(place.port, Authorization="Bearer of-ada") as (ada,):
            assert (await ada.post(ask("k1", data=2)))[0]["d"] == 2
        for path, hello in (("umq", "H1.0.0\n"), ("umq36", "H1:"), ("lrpm", "[2,null,{}]")):
            wire = await place.peer(f"/{path}")  # resumable sessions do not count as connected ones
            wire.text(hello)
            await wire.heard()
            wire.leave()
        page = await http(place.port, "/readyz?verbose")
        assert "[!] sessions: sessions are refused: the share of 6 for all anonymous peers is used up" in page
        assert " 200 " in page.partition("\r\n")[0]
        assert "fiveways_refused_sessions_total 14" in await http(place.port, "/metrics")


@async_test
async def test_connections_of_resumable_sessions_count_for_max_sessions() -> None:
    async with hub(settings(limits=LimitSettings(max_sessions=4))) as place:
        umq = await place.umq()
        first = await linked(place)
        assert place.server.exchange.hub.stats()["connected_sessions"] == 2
        second = await place.peer("/nq")
        frames = []
        while (frame := await asyncio.wait_for(second.frames.get(), 60)) is not None:
            frames.append(frame)
        assert "the share of 2 for address 127.0.0.1 is used up" in str(frames)
        umq.leave()
        await until(lambda: place.server.exchange.hub.stats()["connected_sessions"] == 1)
        third = await linked(place)
        for each in (first, third):
            each.cut()
        await until(lambda: place.server.exchange.hub.stats()["connected_sessions"] == 0)


@async_test
async def test_rate_limit_covers_posts_without_a_cookie() -> None:
    async with hub(settings(limits=LimitSettings(rate=0.01))) as place, posters(place.port) as (peer,):
        assert "d" in (await fresh(peer, ask("k1", data=1)))[0]
        for _ in range(3):
            (refused,) = await fresh(peer, ask("k1", data=1))
            assert refused["e"]["err"] == "busy"
        wire = await linked(place)  # each connection still has its own rate limit
        wire.say(ask("k1", data=1))
        assert (await wire.until("i"))["d"] == 1
        wire.cut()


async def fresh(peer: Poster, *messages: Message) -> list[Message]:
    """Return the response to a POST without an id."""
    peer.peer = ""
    return await peer.post(*messages)
