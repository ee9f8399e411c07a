"""Log lines of a hub about new, ended, refused and slow peers, and secrets that it never logs."""

import asyncio
import logging

import pytest

from fiveways.hub.session import public_name
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from tests.support.memory import nothing_left
from tests.support.raw_peers import http, hub, settings

AUTH = AuthSettings(anonymous="never", identity=(IdentitySettings("worker", token=Secret("hunter2")),))


def fields_of(caplog: pytest.LogCaptureFixture, text: str) -> list[dict[str, object]]:
    """Return the fields of the lines with this prefix."""
    return [
        record.fields  # type: ignore[attr-defined]
        for record in caplog.records
        if record.getMessage().startswith(text)
    ]


def assert_nothing_secret(caplog: pytest.LogCaptureFixture, *secrets: str) -> None:
    written = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert not [secret for secret in secrets if secret in written]


def test_sessions_are_logged_by_their_public_names(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fiveways")

    async def run() -> str:
        async with hub(settings(auth=AUTH)) as place:
            peer = await place.umq("hunter2")
            (secret,) = place.server.exchange.participants
            peer.leave()
            while place.server.exchange.participants:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return secret

    secret = asyncio.run(run())
    about = {"peer": public_name(secret), "protocol": "umq"}
    (opened,) = fields_of(caplog, "session opened")
    assert str(opened.pop("from")).startswith("127.0.0.1:")
    assert opened == about | {"identity": "worker"}
    assert [about.items() <= each.items() for each in fields_of(caplog, "session ended")] == [True]
    assert fields_of(caplog, "the hub is shutting down") == [{"drain_timeout": 1.0, "open_calls": 0, "sessions": 0}]
    assert_nothing_secret(caplog, secret, "hunter2")


def test_wrong_tokens_are_logged_once_a_minute_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hub(settings(auth=AUTH)) as place, nothing_left(50):
            for number in range(50):
                peer = await place.peer("/umq")
                peer.text(f"H1.0.0\nwrong-token-{number}")
                await peer.heard()
            assert place.server.exchange.hub.stats()["refused_logins"] == 50

    asyncio.run(run())
    lines = fields_of(caplog, "login refused")
    assert [line.get("logins") for line in lines] == [None, 49]
    assert all(line["protocol"] == "umq" for line in lines)
    assert all(str(line["from"]).startswith("127.0.0.1:") for line in lines)
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert_nothing_secret(caplog, "wrong-token", "hunter2")


def test_wrong_tokens_in_plain_requests_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hub(settings(auth=AUTH)) as place:
            for number in range(15):
                await http(place.port, "/metrics", Authorization=f"Bearer wrong-token-{number}")
                await http(place.port, "/report", Authorization=f"Bearer wrong-token-{number}")
            assert place.server.exchange.hub.stats()["refused_logins"] == 30

    asyncio.run(run())
    assert fields_of(caplog, "login refused") == [{"protocol": "http"}, {"protocol": "http", "logins": 29}]
    assert_nothing_secret(caplog, "wrong-token", "hunter2")


def test_request_of_a_foreign_page_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hub() as place:
            for _ in range(30):
                await http(place.port, "/lrpm", Origin="https://evil.example", Authorization="Bearer hunter2")

    asyncio.run(run())
    lines = fields_of(caplog, "request refused: ")
    assert [(line["path"], str(line["from"]).rpartition(":")[0]) for line in lines] == [("/lrpm", "127.0.0.1")] * 10
    assert_nothing_secret(caplog, "hunter2")


def test_slow_consumer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    small = LimitSettings(max_unread_events=100_000, max_unread=1 << 24)

    async def run() -> str:
        async with hub(settings(limits=small)) as place:
            stuck, publisher = await place.lrpm(), await place.lrpm()
            secret = next(iter(place.server.exchange.participants))
            stuck.text('[63,300,"news",{}]')
            await stuck.heard()
            stuck.ws.underlying_transport.pause_reading()
            for number in range(400):
                publisher.text(f'[61,{number + 400},"news","{"x" * 50_000}",{{}}]')
                await publisher.heard()
            stuck.leave()
            return secret

    secret = asyncio.run(run())
    assert fields_of(caplog, "slow consumer detected") == [{"peer": public_name(secret), "protocol": "lrpm-json"}]
    assert_nothing_secret(caplog, secret)


def test_disconnected_slow_consumer_is_logged_by_its_public_name(caplog: pytest.LogCaptureFixture) -> None:
    tiny = LimitSettings(max_unread_events=100_000, max_unread=200_000)

    async def run() -> str:
        async with hub(settings(limits=tiny)) as place:
            stuck, caller = await place.umq(), await place.umq()
            secret = next(iter(place.server.exchange.participants))
            stuck.text("M1\nhub:register\nstore")
            await stuck.heard()
            stuck.ws.underlying_transport.pause_reading()
            for number in range(400):
                caller.text(f"M{number}\nstore\n{'x' * 100_000}")
                if len(place.server.exchange.participants) < 2:
                    break
                await asyncio.sleep(0)
            while len(place.server.exchange.participants) == 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stuck.leave()
            return secret

    secret = asyncio.run(run())
    (fields,) = fields_of(caplog, "slow consumer disconnected")
    unread = fields.pop("unread_bytes")
    assert isinstance(unread, int)
    assert unread > 200_000
    assert fields == {"peer": public_name(secret), "protocol": "umq"}
    assert_nothing_secret(caplog, secret)
