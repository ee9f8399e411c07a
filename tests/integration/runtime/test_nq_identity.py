"""Authentication of NQ sessions across reconnects, a reload and a restart of the hub."""

from dataclasses import replace
from pathlib import Path

from fiveways.settings.sections import AnonymousAccess, AuthSettings, IdentitySettings, Secret, Settings, StoreSettings
from tests.integration.runtime.test_nq_http import SOON, error_of
from tests.support.nq_peers import Poster, ask, linked, posters
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test


def settings_with_store(path: Path, anonymous: AnonymousAccess = "never", ann_login: str = "of-ann") -> Settings:
    """Settings with a store and the identities ann and worker."""
    ann = IdentitySettings("ann", token=Secret(ann_login), call=("work", "hub.*"))
    worker = IdentitySettings("worker", token=Secret("of-worker"))
    rules = AuthSettings(anonymous=anonymous, identity=(ann, worker))
    return replace(settings(auth=rules), store=StoreSettings(path=str(path / "store.db")))


async def accepted(place: Place, peer: Poster) -> None:
    """Return a peer with an accepted, unanswered request, so that the store has its session."""
    callee = await place.umq("of-worker")
    callee.text("M1\nhub:register\nwork")
    assert await callee.heard() == "R1\nnull"
    await peer.until("a", ask("k1", "work"), wait=SOON)


async def denied(peer: Poster, request: str) -> bool:
    """Return whether the session may not call a method that its identity may call."""
    answer = await peer.outcome(request, ask(request, "hub-get", {"name": "x"}))
    return "e" in answer and error_of(answer) == ("denied", True)


@async_test
async def test_stored_anonymous_session_is_refused_after_a_restart_with_anonymous_never(tmp_path: Path) -> None:
    async with hub(settings_with_store(tmp_path, "always")) as place, posters(place.port) as (peer,):
        await accepted(place, peer)
        peer_id = peer.peer
    async with hub(settings_with_store(tmp_path)) as place, posters(place.port) as (peer,):
        peer.peer = peer_id
        assert (await peer.raw(b"[]")).status == 401
        assert (await linked(place, peer_id)).peer != peer_id
    async with hub(settings_with_store(tmp_path, "always")) as place, posters(place.port) as (peer,):
        peer.peer = peer_id
        await peer.post()
        assert peer.peer == peer_id


@async_test
async def test_anonymous_session_is_refused_after_a_reload_with_anonymous_never(tmp_path: Path) -> None:
    async with hub(settings_with_store(tmp_path, "always")) as place, posters(place.port) as (peer,):
        await peer.post()
        place.server.reload(settings_with_store(tmp_path))
        assert (await peer.raw(b"[]")).status == 401


@async_test
async def test_stored_session_keeps_its_permissions_after_a_restart_and_a_reload_of_the_same_file(
    tmp_path: Path,
) -> None:
    bearer = "Bearer of-ann"
    async with hub(settings_with_store(tmp_path)) as place, posters(place.port, Authorization=bearer) as (peer,):
        await accepted(place, peer)
        peer_id = peer.peer
    async with hub(settings_with_store(tmp_path)) as place, posters(place.port, Authorization=bearer) as (peer,):
        peer.peer = peer_id
        place.server.reload(settings_with_store(tmp_path))
        assert not await denied(peer, "k2")
        place.server.reload(settings_with_store(tmp_path))
        assert not await denied(peer, "k3")
        assert peer.peer == peer_id


@async_test
async def test_session_resumed_with_a_rotated_token_keeps_its_permissions(tmp_path: Path) -> None:
    rotated = settings_with_store(tmp_path, ann_login="of-ann-2")
    async with (
        hub(settings_with_store(tmp_path)) as place,
        posters(place.port, Authorization="Bearer of-ann") as (peer,),
    ):
        await peer.post()
        peer_id = peer.peer
        place.server.reload(rotated)
        assert (await peer.raw(b"[]")).status == 401
        peer.headers["Authorization"] = "Bearer of-ann-2"
        assert not await denied(peer, "k2")
        linking = await linked(place, peer_id, Authorization="Bearer of-ann-2")
        assert (linking.peer, peer.peer) == (peer_id, peer_id)


# Peer ids.


@async_test
async def test_peer_id_is_accepted_in_a_header_and_in_a_subprotocol_of_a_websocket() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        await peer.post()
        peer_id = peer.peer
        assert (await linked(place, **{"NQ-Peer": peer_id})).peer == peer_id
        offered = {"Sec-WebSocket-Protocol": f"nq.1, nq-peer.{peer_id}"}
        assert (await linked(place, **offered)).peer == peer_id
        assert (await linked(place, peer_id)).peer == peer_id
        assert (await linked(place, **{"NQ-Peer": "unknown"})).peer not in {peer_id, "unknown"}


@async_test
async def test_cookie_is_secure_if_a_proxy_or_setting_indicates_https() -> None:
    plain = settings(auth=AuthSettings(anonymous="always"))
    secure = replace(plain, nq=replace(plain.nq, secure_cookie=True))
    async with hub(plain) as place, posters(place.port) as (peer,):
        assert "Secure" not in (await peer.raw(b"[]")).headers["set-cookie"]
        assert "Secure" not in (await peer.raw(b"[]", **{"X-Forwarded-Proto": "http, https"})).headers["set-cookie"]
        for header in ({"X-Forwarded-Proto": "https"}, {"Forwarded": "for=192.0.2.1;proto=https, for=10.0.0.1"}):
            assert (await peer.raw(b"[]", **header)).headers["set-cookie"].endswith("; Secure")
    async with hub(secure) as place, posters(place.port) as (peer,):
        assert (await peer.raw(b"[]")).headers["set-cookie"].endswith("; Secure")


@async_test
async def test_responses_are_not_cacheable(tmp_path: Path) -> None:
    async with hub(settings_with_store(tmp_path)) as place, posters(place.port) as (peer,):
        answers = [
            await peer.raw(b"[]", Authorization="Bearer of-ann"),
            await peer.raw(b"[]"),
            await peer.raw(b"[]", "/nq?wait=never"),
        ]
        assert [answer.status for answer in answers] == [200, 401, 400]
        assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
