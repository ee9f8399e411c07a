"""Session names: `connect(..., name=...)`."""

from typing import Any

import pytest

import fiveways
from fiveways.client.connect import Connector, connect
from fiveways.client.connection_state import ConnectionState
from fiveways.client.handshake import BadCredentials
from fiveways.client.peer import Peer
from fiveways.client.settings import MAX_NAME
from fiveways.hub.peer_listing import MAX_NAME_LENGTH
from fiveways.settings.sections import ServerSettings
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test
from tests.support.scripted_hub import EVERY, URLS, wait_for_state

every_protocol = pytest.mark.parametrize("protocol", EVERY)


def at(place: Place, protocol: str, **settings: object) -> Connector:
    return connect(URLS[protocol].replace("hub", f"127.0.0.1:{place.port}"), **settings)  # type: ignore[arg-type]


async def names(peer: Peer) -> list[str]:
    result: Any = await peer.call("hub.peers")
    return [item["name"] for item in result["peers"]]


@every_protocol
@pytest.mark.parametrize("name", ["worker-7", "7", "true", "Němec \N{GRINNING FACE}", "x" * MAX_NAME])
@async_test
async def test_hub_shows_the_name_of_a_session(protocol: str, name: str) -> None:
    async with hub() as place, at(place, protocol, name=name) as peer:
        assert await names(peer) == [name]
        assert await peer.vars.get("name") == name
        await peer.vars.set("name", "renamed")
        assert await names(peer) == ["renamed"]


@every_protocol
@async_test
async def test_name_survives_a_lost_connection(protocol: str) -> None:
    async with hub() as place, at(place, protocol, name="worker-7", backoff=(0.01, 0.05)) as peer:
        session = peer._core.reconnector.session
        assert session is not None
        session._link.abort()
        await wait_for_state(peer, ConnectionState.RECONNECTED)
        assert "worker-7" in await names(peer)


@every_protocol
@async_test
async def test_name_survives_a_restart_of_the_hub(protocol: str) -> None:
    async with hub() as place:
        port = place.port
        async with at(place, protocol, name="worker-7", backoff=(0.01, 0.05)) as peer:
            await place.server.stop()
            async with hub(settings(server=ServerSettings(port=port, drain_timeout=1.0))):
                await wait_for_state(peer, ConnectionState.RECONNECTED)
                assert await names(peer) == ["worker-7"]


@async_test
async def test_session_without_a_name_sets_no_variable() -> None:
    async with hub() as place, at(place, "umq") as peer:
        assert await names(peer) == [""]
        assert await peer.vars.get("name") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "must be a non-empty string"),
        ("  ", "must be a non-empty string"),
        (7, "must be a non-empty string"),
        ("a\nb", "must not contain control characters"),
        ("a\x00", "must not contain control characters"),
        ("a\u2028b", "must not contain control characters"),
        ("\ud800", "must not contain control characters"),
        ("x" * (MAX_NAME + 1), "has 65 characters; the limit is 64"),
    ],
)
def test_invalid_name_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        connect("umq+ws://localhost", name=name)
    with pytest.raises(ValueError, match=text):
        fiveways.connect_sync("umq+ws://localhost", name=name)


def test_hub_shows_a_name_of_maximum_length() -> None:
    assert MAX_NAME == MAX_NAME_LENGTH


def test_name_is_refused_for_a_broker() -> None:
    with pytest.raises(BadCredentials, match="`token`, `app`, `idle_close` and `name` cannot be used"):
        connect("mqtt-rpc+mqtt://localhost/service", name="worker-7")
