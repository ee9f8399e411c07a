"""NQ over HTTP: raw requests to a real hub over real sockets."""

import asyncio
import json
import re
import signal
import time
from typing import ParamSpec

import pytest

from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, ServerSettings, Settings
from tests.support.hub_process import served as hub_process
from tests.support.memory import nothing_left
from tests.support.nq_peers import Message, Poster, ask, packed, posters, served
from tests.support.raw_peers import PATIENCE, http, hub, settings
from tests.support.running import async_test
from tests.support.waiting import until

P = ParamSpec("P")
SOON = 60.0
"""Seconds of patience for events that take a few milliseconds."""
QUIET = 0.15
"""Seconds in which nothing may happen."""
TOKENS = AuthSettings(
    anonymous="never",
    identity=(IdentitySettings("ann", token=Secret("of-ann")), IdentitySettings("bob", token=Secret("of-bob"))),
)


def error_of(message: Message) -> tuple[str, bool]:
    return message["e"]["err"], message["e"]["fatal"]


# Requests and responses.


@async_test
async def test_request_is_accepted_answered_and_acknowledged() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        callee = await served(place)
        (acceptance,) = await peer.post(ask("k1", "work", {"x": 1}))
        assert acceptance == {"a": acceptance["a"], "i": "k1"}
        assert await callee.heard() == 'M1\nwork\n{"x":1}'
        assert await peer.post() == []
        callee.text("R1\n42")
        answer = {**acceptance, "d": 42}
        assert await peer.post(wait=5) == [answer]
        # A repeat, with other data or not, is the same request and does not run again.
        assert await peer.post(ask("k1", "work", {"x": 2})) == [answer]
        assert await peer.post({"i": answer["a"]}) == []
        (over,) = await peer.post(ask("k1", "work", {"x": 1}))
        assert error_of(over) == ("expired", True)
        callee.text("M2\nhub:ping\n")
        assert await callee.heard() == "R2\npong"


@async_test
async def test_answer_is_repeated_until_acknowledged() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        (answer,) = await peer.post(ask("k1", "hub-echo", "hi"))
        assert (answer["i"], answer["d"]) == ("k1", "hi")
        start = time.monotonic()
        assert await peer.post(wait=10) == [answer]
        assert time.monotonic() - start > 0.5
        assert await peer.post({"i": answer["a"]}) == []


@async_test
async def test_poll_returns_the_state_of_a_request() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        callee = await served(place)
        await peer.post(ask("k1", "work"))
        (note,) = await peer.post({"t": "work", "p": "k1"})
        assert note["e"] == {"type": "sys", "fatal": False, "note": "pending"}
        (note,) = await peer.post({"t": "work", "p": "k2"})
        assert note["e"]["note"] == "unknown"
        callee.text("R1\n1")
        answer = await peer.until("d")
        assert [each.get("e", {}).get("note") for each in await peer.post({"t": "work", "p": "k1"})] == ["done", None]
        assert answer["d"] == 1


@async_test
async def test_invalid_element_of_a_batch_fails_alone() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        messages = await peer.post(
            ask("1", data=1), {"r": "2", "a": "3"}, {"nothing": 1}, ask("4", "no-such"), ask("5", data=5)
        )
        assert {each["i"]: each["d"] for each in messages if "d" in each} == {"1": 1, "5": 5}
        failures = {each.get("i", ""): error_of(each) for each in messages if "e" in each}
        assert failures == {"2": ("malformed", True), "": ("malformed", True), "4": ("notarget", True)}


@async_test
async def test_batch_of_1000_requests_is_answered() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        answers = {each["i"]: each for each in await peer.post(*(ask(f"k{n}", data=n) for n in range(1000)))}
        while len(answers) < 1000:
            answers |= {each["i"]: each for each in await peer.post()}
        assert all(answers[f"k{number}"]["d"] == number for number in range(1000))
        assert await peer.post({"i": [each["a"] for each in answers.values()]}) == []


@async_test
async def test_idle_poll_is_empty_and_gets_an_id() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        answer = await peer.raw(b"[]")
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"[]", "application/json")
        given = answer.headers["nq-peer"]
        assert re.fullmatch("[0-9a-f]{56}", given)
        assert answer.headers["set-cookie"] == f"fiveways-nq={given}; Path=/nq; HttpOnly; SameSite=Strict"
        peer.peer = given
        assert (await peer.raw(b"[]")).headers["nq-peer"] == given


# Long polls.


@async_test
async def test_long_poll_is_answered_when_a_message_is_due() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        callee = await served(place)
        await peer.post(ask("k1", "work"))
        poll = asyncio.ensure_future(peer.post(wait=30))
        done, _ = await asyncio.wait([poll], timeout=QUIET)
        assert not done
        callee.text("R1\n42")
        (answer,) = await asyncio.wait_for(poll, SOON)
        assert answer["d"] == 42


@async_test
async def test_idle_long_poll_ends_in_time() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        start = time.monotonic()
        assert await peer.post(wait=0.2) == []
        assert time.monotonic() - start >= 0.2


@async_test
async def test_due_message_is_sent_without_a_wait() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        (answer,) = await asyncio.wait_for(peer.post(ask("k1", data=1), wait=30), SOON)
        assert answer["d"] == 1


@async_test
async def test_second_poll_releases_the_first() -> None:
    async with hub() as place, posters(place.port, 2) as (first, second):
        callee = await served(place)
        await first.post(ask("k1", "work"))
        second.peer = first.peer
        early = asyncio.ensure_future(first.post(wait=30))
        await asyncio.sleep(QUIET)
        late = asyncio.ensure_future(second.post(wait=30))
        assert await asyncio.wait_for(early, SOON) == []
        callee.text("R1\n1")
        (answer,) = await asyncio.wait_for(late, SOON)
        assert answer["d"] == 1


@async_test
async def test_lost_poller_gets_its_answer_when_it_returns() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        callee = await served(place)
        await peer.post(ask("k1", "work"))
        await peer.begin(target="/nq?wait=30")
        await asyncio.sleep(QUIET)
        peer.cut()
        await until(lambda: len(http_tasks()) == 0)
        callee.text("R1\n42")
        (answer,) = await peer.post(wait=5)
        assert answer["d"] == 42


def http_tasks() -> list[object]:
    """The hub's tasks for waiting HTTP clients."""
    return [task for task in asyncio.all_tasks() if "_answer_later" in repr(task)]


# Identity.


@pytest.mark.parametrize("given", ["0" * 32, "x", "ž" * 20, "a" * 4000, "%00"])
@async_test
async def test_unknown_id_is_replaced(given: str) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        answer = await peer.raw(b"[]", **{"NQ-Peer": given.encode().decode("latin-1")})
        assert answer.status == 200
        assert re.fullmatch("[0-9a-f]{56}", answer.headers["nq-peer"])
        assert answer.headers["nq-peer"] != given


@async_test
async def test_cookie_identifies_the_peer_unless_a_header_does() -> None:
    async with hub() as place, posters(place.port, 3) as (peer, browser, other):
        await peer.post(ask("k1", data="kept"))
        await other.post()
        cookie = f"theme=dark; fiveways-nq={peer.peer}; other=1"
        answer = await browser.raw(packed(ask("k1", data="other")), Cookie=cookie)
        assert (answer.headers["nq-peer"], answer.messages[0]["d"]) == (peer.peer, "kept")
        answer = await browser.raw(b"[]", Cookie=cookie, **{"NQ-Peer": other.peer})
        assert answer.headers["nq-peer"] == other.peer


@async_test
async def test_id_is_useless_with_another_token_or_none() -> None:
    async with hub(settings(auth=TOKENS)) as place, posters(place.port, 2) as (ann, thief):
        ann.headers["Authorization"] = "Bearer of-ann"
        (answer,) = await ann.post(ask("k1", data="secret"))
        thief.peer = ann.peer
        for token in ("of-bob", "of-an", "of-annn"):
            stolen = await thief.raw(b"[]", Authorization=f"Bearer {token}")
            assert stolen.headers.get("nq-peer") != ann.peer
            assert b"secret" not in stolen.body
        assert await ann.post(ask("k1", data="secret")) == [answer]


@async_test
async def test_wrong_token_is_401_and_leaves_no_session() -> None:
    async with hub(settings(auth=TOKENS)) as place, posters(place.port) as (peer,):
        for _ in range(3):
            answer = await peer.raw(packed(ask("k1")), Authorization="Bearer wrong")
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert "nq-peer" not in answer.headers
        assert len(place.server.resumable_sessions) == 0
        assert place.server.exchange.participants == {}


@async_test
async def test_missing_token_is_refused_if_all_identities_have_secrets() -> None:
    auth = AuthSettings(anonymous="never", identity=(IdentitySettings("ann", secret=Secret("s")),))
    async with hub(settings(auth=auth)) as place, posters(place.port) as (peer,):
        assert (await peer.raw(packed(ask("k1")))).status == 401
        assert len(place.server.resumable_sessions) == 0


# Calls to HTTP peers.


@async_test
async def test_http_peer_serves_calls_by_polling() -> None:
    async with hub() as place, posters(place.port) as (worker,):
        (granted,) = await worker.post(ask("k1", "hub-register", {"name": "account-get_balance"}))
        assert granted["d"] is None
        await worker.post({"i": granted["a"]})
        caller = await place.lrpm()
        poll = asyncio.ensure_future(worker.post(wait=30))
        await asyncio.sleep(QUIET)
        caller.text('[40,300,"account.get_balance",{"user":"alice"},{}]')
        (call,) = await asyncio.wait_for(poll, SOON)
        assert (call["t"], call["d"]) == ("account-get_balance", {"user": "alice"})
        assert await worker.post({"a": "b1", "i": call["r"], "d": 12.5}) == [{"i": "b1"}]
        assert await caller.heard() == "[41,300,12.5,{}]"
        caller.text('[40,301,"account.get_balance",null,{}]')
        call = await worker.until("t")
        await worker.post({"a": "b2", "i": call["r"], "e": {"type": "app", "fatal": True, "err": "nofunds"}})
        assert "nofunds" in await caller.heard()


@async_test
async def test_http_peer_serves_another_http_peer() -> None:
    async with hub() as place, posters(place.port, 2) as (worker, caller):
        await worker.post(ask("k1", "hub-register", "work"))
        asking = asyncio.ensure_future(caller.until("d", ask("k1", "work", [1])))
        call = await worker.until("t")
        assert "redelivered" not in call
        await worker.post({"a": "b1", "i": call["r"], "d": [2]})
        assert (await asking)["d"] == [2]


@async_test
async def test_http_subscriber_gets_events_with_its_next_poll() -> None:
    async with hub() as place, posters(place.port) as (reader,):
        (granted,) = await reader.post(ask("k1", "hub-subscribe", {"topic": "news", "id": "n"}))
        await reader.post({"i": granted["a"]})
        publisher = await place.lrpm()
        for number in range(3):
            publisher.text(f'[61,{300 + number},"news",{number},{{}}]')
            await publisher.heard()
        events = await reader.post()
        assert [(each["t"], each["d"]) for each in events] == [("n", 0), ("n", 1), ("n", 2)]
        answers = [{"a": f"b{number}", "i": each["r"], "d": None} for number, each in enumerate(events)]
        assert await reader.post(*answers) == [{"i": ["b0", "b1", "b2"]}]
        poll = asyncio.ensure_future(reader.post(wait=30))
        await asyncio.sleep(QUIET)
        publisher.text('[61,310,"news","late",{}]')
        (event,) = await asyncio.wait_for(poll, SOON)
        assert event["d"] == "late"


@async_test
async def test_request_waits_for_a_callee() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        first = await served(place)
        await peer.post(ask("k1", "work", 1))
        assert await first.heard() == "M1\nwork\n1"
        first.leave()
        await until(lambda: place.server.exchange.hub.open_calls() == 0)
        (acceptance,) = await peer.post(ask("k2", "work", 2))
        assert acceptance["i"] == "k2"
        second = await place.umq()
        second.text("M1\nhub:register\nwork")
        received = {await second.heard() for _ in range(3)}
        assert received == {"R1\nnull", "M1\nwork\n1", "M2\nwork\n2"}
        second.text("R1\n10")
        second.text("R2\n20")
        answers: dict[str, object] = {}
        while len(answers) < 2:
            answers |= {each["i"]: each["d"] for each in await peer.post(wait=5) if "d" in each}
        assert answers == {"k1": 10, "k2": 20}


@async_test
async def test_request_can_be_cancelled() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        await served(place)
        (acceptance,) = await peer.post(ask("k1", "work"))
        (end,) = await peer.post({"i": acceptance["a"], "e": {"type": "local", "fatal": True, "err": "cancelled"}})
        assert (end["i"], error_of(end)) == ("k1", ("cancelled", True))


# Refusals.


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000, b"null"])
@async_test
async def test_invalid_message_is_reported_and_ignored(body: bytes) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        answer = await peer.raw(body)
        assert answer.status == 200
        (complaint,) = answer.messages
        assert error_of(complaint) == ("malformed", True)
        peer.peer = answer.headers["nq-peer"]
        (echo,) = await peer.post(ask("k1", data="well"))
        assert echo["d"] == "well"


@async_test
async def test_too_deep_message_is_refused_alone() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        deep = b'{"t":"hub-echo","r":"deep","d":' + b"[" * 5000 + b"]" * 5000 + b"}"
        answer = await peer.raw(b"[" + deep + b',{"t":"hub-echo","r":"flat","d":1}]')
        assert answer.status == 200
        assert all("d" not in each for each in answer.messages if each.get("i") == "deep")
        peer.peer = answer.headers["nq-peer"]
        assert (await peer.until("d", ask("again", data=1)))["d"] == 1


@pytest.mark.parametrize(
    "message",
    [
        {"t": "hub-echo", "r": "1", "d": "\ud800"},
        {"t": "wo\ud800rk", "r": "1"},
        {"t": "hub-echo", "r": "\udfff"},
        {"t": "work", "r": "1", "traceparent": "\ud800"},
        {"t": "work", "r": "1", "fr\ud800": 1},
    ],
)
@async_test
async def test_lone_surrogate_is_refused(message: Message) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        await served(place)
        (complaint,) = await peer.post(message)
        assert error_of(complaint) == ("malformed", True)
        assert (await peer.post(ask("k1", data=1)))[0]["d"] == 1


@async_test
async def test_too_large_body_is_413() -> None:
    given = settings(limits=LimitSettings(max_text=3000))
    async with hub(given) as place, posters(place.port, 2) as (peer, other):
        assert (await peer.raw(b"[" + b" " * 3000 + b"]")).status == 413
        assert (await other.raw(b"[" + b" " * 2998 + b"]")).status == 200


@async_test
async def test_other_methods_get_an_explanation() -> None:
    async with hub() as place:
        answer = await http(place.port, "/nq")
        assert answer.startswith("HTTP/1.1 426 ")
        assert "/nq is for WebSocket clients (nq+ws://HOST:PORT/nq), or for POST with messages in JSON" in answer
        async with posters(place.port, 3) as peers:
            for peer, method in zip(peers, ("PUT", "DELETE", "PATCH"), strict=True):
                assert (await peer.raw(b"[]", method=method)).status == 405
        assert len(place.server.resumable_sessions) == 0


@async_test
async def test_post_to_another_path_is_refused() -> None:
    async with hub() as place:
        for path, status in (
            ("/umq", 405),
            ("/lrpm", 405),
            ("/", 405),
            ("/livez", 405),
            ("/nq/", 404),
            ("/other", 404),
        ):
            async with posters(place.port) as (peer,):
                assert (await peer.raw(b"[]", path)).status == status


@pytest.mark.parametrize("query", ["wait=x", "wait=-1", "wait=nan", "wait=1;2", "a=1&" * 9 + "wait=1"])
@async_test
async def test_invalid_wait_is_400(query: str) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        answer = await peer.raw(packed(ask("k1")), f"/nq?{query}")
        assert (answer.status, b"`wait` is a number of seconds" in answer.body) == (400, True)
        assert len(place.server.resumable_sessions) == 0


@pytest.mark.parametrize("query", ["wait=", "other=1", "wait=0&wait=30", "wait=0e9"])
@async_test
async def test_empty_wait_is_no_wait(query: str) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        answer = await asyncio.wait_for(peer.raw(b"[]", f"/nq?{query}"), SOON)
        assert (answer.status, answer.body) == (200, b"[]")


@async_test
async def test_foreign_page_is_refused() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        assert (await peer.raw(b"[]", Origin="https://evil.example")).status == 403
        assert len(place.server.resumable_sessions) == 0


# Hostile peers.


@pytest.mark.parametrize(
    "cookie", ['"' * 8000 + "\\" * 7000, "=" * 15_000, "fiveways-nq=\\777", "fiveways-nq", "é=ž", "a=1;" * 3000, ";"]
)
@async_test
async def test_garbage_in_a_cookie_is_ignored_quickly(cookie: str) -> None:
    async with hub() as place, posters(place.port) as (peer,):
        answer = await asyncio.wait_for(peer.raw(b"[]", Cookie=cookie.encode().decode("latin-1")), SOON)
        assert answer.status == 200


@async_test
async def test_too_many_headers_are_refused_without_a_session() -> None:
    async with hub() as place, posters(place.port, 2) as (peer, other):
        flood = {f"X-{number}": "x" * 100 for number in range(1000)}
        assert (await peer.raw(b"[]", **flood)).status == 431
        assert len(place.server.resumable_sessions) == 0
        assert (await other.raw(b"[]")).status == 200


@async_test
async def test_guessed_ids_reveal_nothing() -> None:
    async with hub() as place, nothing_left(300), posters(place.port, 2) as (peer, thief):
        await peer.post(ask("k1", data="secret"))
        for number in range(300):
            thief.peer = f"{int(peer.peer, 16) ^ (1 << number % 128):032x}"
            answer = await thief.raw(packed({"t": "hub-echo", "p": "k1"}))
            assert answer.messages[0]["e"]["note"] == "unknown"


@async_test
async def test_peer_id_is_hidden_from_others() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        await peer.post(ask("k1", "hub-set", {"name": "colour", "value": "red"}))
        other = await place.lrpm()
        other.text('[40,300,"hub.peers",null,{}]')
        frame = await other.heard()
        assert peer.peer not in frame
        (name,) = [each["peer"] for each in json.loads(frame)[2]["peers"] if each["protocol"] == "nq"]
        thief = Poster(place.port, name)
        await thief.post()
        assert thief.peer != peer.peer
        await thief.close()
        other.text(json.dumps([40, 301, "hub.get", {"name": "colour", "peer": name}, {}]))
        assert json.loads(await other.heard())[2] == "red"


@async_test
async def test_peer_without_acknowledgements_gets_busy() -> None:
    given = settings(limits=LimitSettings(max_pending=500))
    async with hub(given) as place, posters(place.port) as (peer,):
        received: dict[str, Message] = {}
        for first in range(0, 10_000, 1000):
            for each in await peer.post(*(ask(f"k{first + number}", data=number) for number in range(1000))):
                received.setdefault(each["i"], each)
        while messages := [each for each in await peer.post() if each["i"] not in received]:
            received |= {each["i"]: each for each in messages}
        answered = [each for each in received.values() if "d" in each]
        refused = {error_of(each) for each in received.values() if "e" in each}
        assert (len(answered), refused) == (500, {("busy", True)})
        await peer.post({"i": [each["a"] for each in answered]})
        (echo,) = [each for each in await peer.post(ask("new", data="well")) if each["i"] == "new"]
        assert echo["d"] == "well"


# Many peers, and the end of the hub.


@async_test
async def test_2000_single_requests_leave_no_sessions() -> None:
    async with hub() as place, nothing_left(2000 // 20):
        async with posters(place.port, 10) as connections:
            for _ in range(200):
                for peer in connections:
                    peer.peer = ""
                    await peer.begin(packed({"t": "hub-echo", "p": "k"}))
                assert [(await peer.answer()).status for peer in connections] == [200] * 10
            assert len(place.server.resumable_sessions) == 0
            assert place.server.exchange.participants == {}
        await until(lambda: place.server._port.connections() == 0)
        assert http_tasks() == []
        assert len(asyncio.all_tasks()) < 10


@async_test
async def test_silent_peers_are_forgotten() -> None:
    async with hub() as place, posters(place.port) as (peer,):
        await peer.post(ask("k1", "hub-register", "work"))
        (session,) = place.server.resumable_sessions._by_id.values()  # the test does not wait for a day
        place.server.resumable_sessions._end(session)
        assert place.server.exchange.participants == {}
        assert place.server.exchange.hub.stats()["sessions"] == 0
        old = peer.peer
        await peer.post()
        assert peer.peer != old


@async_test
async def test_stopping_hub_refuses_new_requests_and_drains_old_ones() -> None:
    given = Settings(server=ServerSettings(port=0, drain_timeout=60.0))
    async with hub(given) as place, posters(place.port, 2) as (peer, other):
        callee = await served(place)
        await other.post()
        await peer.post(ask("k1", "work"))
        poll = asyncio.ensure_future(peer.post(wait=30))
        await asyncio.sleep(QUIET)
        stopping = asyncio.ensure_future(place.server.stop())
        await asyncio.sleep(QUIET)
        refused = await other.raw(packed(ask("k2", "work")))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        callee.text("R1\n42")
        (answer,) = await asyncio.wait_for(poll, SOON)
        assert answer["d"] == 42
        callee.leave()
        await stopping


@async_test
async def test_sigterm_answers_a_waiting_poll_and_exits_with_0() -> None:
    async with hub_process() as (process, port), posters(port) as (peer,):
        await peer.post()
        poll = asyncio.ensure_future(peer.raw(b"[]", "/nq?wait=30"))
        await asyncio.sleep(QUIET)
        process.send_signal(signal.SIGTERM)
        answer = await asyncio.wait_for(poll, SOON)
        assert answer.status == 200
        await asyncio.wait_for(process.wait(), PATIENCE)
        assert process.returncode == 0
