"""The handshake: credentials, challenges and refusals."""

import asyncio
import hmac
from typing import Any

import pytest

from fiveways.client.connect import connect
from fiveways.client.handshake import BadCredentials
from fiveways.client.settings import ClientSettings
from fiveways.client.urls import BadUrl, parse
from fiveways.errors import ConnectionLost, Refused
from fiveways.model.messages import Challenge, Goodbye, Hello, HubMessage, Proof, Welcome
from fiveways.wire.payload import Value
from tests.support.running import async_test
from tests.support.scripted_hub import PROTOCOLS, ScriptedHub, ScriptedSession

ALICE: dict[str, Any] = {"identity": "alice", "secret": "s3cret"}
TOKEN: dict[str, Any] = {"token": "t0ken"}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def silent(_: ScriptedSession, __: HubMessage) -> bool:
    return False


@every_protocol
@pytest.mark.parametrize("token", ["", "wdjqdh423", "12345", '{"a":1}', "žluť"])
@async_test
async def test_token_is_sent_in_the_hello(protocol: str, token: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = silent
    opening = asyncio.ensure_future(hub.connecting(token=token)._open())
    session = await hub.sessions.get()
    hello = (await session.next(Hello)).body.value()
    if not token:
        assert hello in (None, "")
    elif protocol.startswith("lrpm") or token in {"12345", '{"a":1}'}:
        assert hello == {"token": token}
    else:
        assert hello == token
    session.say(Welcome(Value({"session": "mine"})))
    peer = await opening
    assert peer.session == "mine"
    await peer.close()


@pytest.mark.parametrize("protocol", ["lrpm-json", "lrpm-cbor"])
@async_test
async def test_proof_does_not_contain_the_secret(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = silent
    opening = asyncio.ensure_future(hub.connecting(**ALICE)._open())
    session = await hub.sessions.get()
    assert (await session.next(Hello)).body.value() == {"identity": "alice"}
    session.say(Challenge(Value({"nonce": "c0ffee", "method": "hmac-sha256"})))
    mac = hmac.new(b"s3cret", b"c0ffee", "sha256").hexdigest()
    assert (await session.next(Proof)).body.value() == {"mac": mac}
    session.say(Welcome())
    peer = await opening
    assert peer.session == ""
    await peer.close()


@pytest.mark.parametrize("body", [None, {"nonce": "x"}, {"nonce": 5, "method": "hmac-sha256"}, {"method": "rot13"}])
@async_test
async def test_unknown_challenge_ends_the_connection(body: object) -> None:
    hub = ScriptedHub()
    hub.answer = silent
    opening = asyncio.ensure_future(hub.connecting(**ALICE)._open())
    session = await hub.sessions.get()
    await session.next(Hello)
    session.say(Challenge(Value(body)))
    with pytest.raises(ConnectionLost, match="hmac-sha256"):
        await opening
    await session.next(Goodbye)


@async_test
async def test_challenge_without_a_secret_raises_refused() -> None:
    hub = ScriptedHub()
    hub.answer = silent
    opening = asyncio.ensure_future(hub.connecting(**TOKEN)._open())
    session = await hub.sessions.get()
    await session.next(Hello)
    session.say(Challenge(Value({"nonce": "x", "method": "hmac-sha256"})))
    with pytest.raises(Refused, match="identity"):
        await opening


@every_protocol
@async_test
async def test_refused_login_is_not_retried(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = silent
    for denied in (True, False):
        opening = asyncio.ensure_future(hub.connecting()._open())
        session = await hub.sessions.get()
        await session.next(Hello)
        session.say(Goodbye("not today", denied=denied))
        with pytest.raises(ConnectionLost, match="not today") as caught:
            await opening
        assert isinstance(caught.value, Refused) is denied
    assert hub.attempts == 2


@every_protocol
@async_test
async def test_refusal_has_the_text_of_the_hub(protocol: str) -> None:
    hub = ScriptedHub(protocol)
    hub.answer = silent
    for login in (TOKEN, {}):
        opening = asyncio.ensure_future(hub.connecting(**login)._open())
        session = await hub.sessions.get()
        await session.next(Hello)
        session.say(Goodbye("not today", denied=True))
        with pytest.raises(Refused) as caught:
            await opening
        assert str(caught.value) == "not today"
        assert "t0ken" not in str(caught.value)


@async_test
async def test_error_of_an_unreachable_hub_has_its_url() -> None:
    hub = ScriptedHub()
    hub.is_up = False
    with pytest.raises(ConnectionLost, match=r"lrpm\+ws://hub: connection refused"):
        await hub.connecting()


@async_test
async def test_silent_hub_times_out() -> None:
    hub = ScriptedHub()
    hub.answer = silent
    with pytest.raises(ConnectionLost, match="did not complete the handshake"):
        await hub.connecting(open_timeout=0.01)
    session = await hub.sessions.get()
    await session.is_over.wait()


@async_test
async def test_cancelled_connect_closes_the_link() -> None:
    hub = ScriptedHub()
    hub.answer = silent
    opening = asyncio.ensure_future(hub.connecting()._open())
    session = await hub.sessions.get()
    await session.next(Hello)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await session.is_over.wait()


def test_unsupported_credentials_raise_before_connecting() -> None:
    for login in ({"identity": "a"}, {"secret": "b"}, {"identity": "a", "secret": "b", "token": "c"}):
        with pytest.raises(BadCredentials):
            connect("lrpm+ws://h", **login)  # type: ignore[arg-type]
    with pytest.raises(BadCredentials, match="umq does not support `identity`"):
        connect("umq+ws://h", **ALICE)
    with pytest.raises(BadUrl):
        connect("ws://h")


def test_repr_does_not_show_secrets() -> None:
    shown = repr(ClientSettings(parse("umq+ws://h"), **TOKEN, **ALICE))
    assert "t0ken" not in shown
    assert "s3cret" not in shown
