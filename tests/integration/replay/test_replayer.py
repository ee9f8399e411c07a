"""Replay of recordings of a real hub: equal responses, and reported differences."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import fiveways
from fiveways.app.context import Context
from fiveways.app.responses import Fail, Reply
from fiveways.replay.comparison import DIFFERENT_BODY, DIFFERENT_STATUS, EQUAL, EXTRA, MISSING
from fiveways.replay.replayer import Replayer
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from tests.integration.replay.replaying import URLS, recording, replayed, with_zmq
from tests.support.journal_scenarios import JournalBuilder
from tests.support.raw_peers import hub, settings
from tests.support.running import async_test

TOKEN = "geheim"  # noqa: S105  not much of a secret


def worker(number: int) -> fiveways.App:
    """Return the methods of one callee."""
    app = fiveways.App()

    @app.method(f"w{number}.twice")
    async def twice(n: int) -> int:
        return 2 * n

    @app.method(f"w{number}.fail")
    async def fail() -> None:
        raise Fail("no luck", name="demo.err.luck", data={"luck": 0})

    @app.method(f"w{number}.count")
    async def count(n: int) -> AsyncIterator[int]:
        for index in range(n):
            yield index

    @app.method(f"w{number}.swap")
    async def swap(context: Context) -> Reply:
        attachments = await context.attachments()
        return Reply(len(attachments), attachments=attachments[::-1])

    return app


def counts(replayer: Replayer, category: str = "call") -> dict[str, int]:
    return dict(replayer.stats.counts[category])


def app_with_method(answer: object) -> fiveways.App:
    """Return an app of the hub with a method that returns `answer`."""
    app = fiveways.App()

    @app.method("demo.ask")
    async def ask() -> object:
        if answer is None:
            await asyncio.Event().wait()
        return answer

    return app


@async_test
async def test_calls_in_all_protocols_are_replayed(tmp_path: Path) -> None:
    async with recording(tmp_path) as place:
        urls = [url.format(port=place.port) for url in URLS.values()]
        callees = [await fiveways.connect(url, app=worker(number)) for number, url in enumerate(urls)]
        for url in urls:
            async with fiveways.connect(url) as caller:
                for number in range(len(urls)):
                    answers = await asyncio.gather(*[caller.call(f"w{number}.twice", [n]) for n in range(3)])
                    assert answers == [0, 2, 4]
                    with pytest.raises(fiveways.CallFailed):
                        await caller.call(f"w{number}.fail")
                    assert await caller.call(f"w{number}.count", [3]) == [0, 1, 2]
                if "umq" in url:
                    assert await caller.call("w0.swap", attachments=[b"one", b"two"]) == 2
                assert await caller.call("hub.time")
        for callee in callees:
            await callee.close()
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    assert replayer.stats.is_equal
    assert replayer.sessions == 2 * len(URLS)
    # The calls include the registrations of the callees.
    assert counts(replayer)[EQUAL] > 6 * (6 * 5 + 1) + 2
    assert counts(replayer, "request")[EQUAL] == 6 * 6 * 5 + 2
    assert not replayer.sender.unsent


@async_test
async def test_topics_callbacks_and_work_queues_are_replayed(tmp_path: Path) -> None:
    async with recording(tmp_path) as place:
        urls = [url.format(port=place.port) for url in URLS.values()]
        for url in urls:
            async with fiveways.connect(url) as peer, fiveways.connect(urls[0]) as other:
                async with peer.subscribe("news.*") as events:
                    for number in range(5):
                        await other.publish("news.today", {"number": number})
                    assert [(await anext(events)).data for _ in range(5)] == [{"number": n} for n in range(5)]
                token = await peer.callback(lambda word: f"{word}!")
                assert await other.call(f"callback.{token}", ["hello"]) == "hello!"
                await other.push("work", "dig")
                async with peer.pull("work") as job:
                    assert job.data == "dig"
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    assert replayer.stats.is_equal


@async_test
async def test_different_responses_are_reported(tmp_path: Path) -> None:
    async with recording(tmp_path, app_with_method("then")) as place:
        for url in URLS.values():
            async with fiveways.connect(url.format(port=place.port)) as peer:
                assert await peer.call("demo.ask") == "then"
    async with hub(app=app_with_method("then")) as place:
        assert (await replayed(tmp_path, place)).stats.is_equal
    async with hub(app=app_with_method("now")) as place:
        replayer = await replayed(tmp_path, place)
    assert counts(replayer) == {DIFFERENT_BODY: len(URLS)}
    first = replayer.stats.differences[0]
    assert (first.name, first.recorded, first.live) == (
        "demo.ask",
        {"status": "result", "body": "then"},
        {"status": "result", "body": "now"},
    )
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert counts(replayer) == {DIFFERENT_STATUS: len(URLS)}
    async with hub(app=app_with_method(None)) as place:
        replayer = await replayed(tmp_path, place, answer_timeout=1.0)
    assert counts(replayer) == {MISSING: len(URLS)}
    assert not replayer.stats.is_equal


def recorded_call(hub_id: int = 900, *, forwarded: bytes = b"[2,3]", arguments: bytes = b"[2,3]") -> JournalBuilder:
    """Return the recording of a call, with an id to the callee that no hub will use again."""
    story = JournalBuilder().received("callee", "lrpm-json", b"[2,null,{}]")
    story.received("callee", "lrpm-json", b'[40,1,"hub.register",{"name":"math.add"},{}]')
    story.sent("callee", "lrpm-json", b"[41,1,null,{}]").received("caller", "umq", b"H1\n***")
    story.received("caller", "umq", b"M1\nmath:add\n%b" % arguments, "7")
    story.sent("callee", "lrpm-json", b'[40,%d,"math.add",%b,{}]' % (hub_id, forwarded), "7")
    return story.received("callee", "lrpm-json", b"[41,%d,5,{}]" % hub_id, "7").sent("caller", "umq", b"R1\n5", "7")


@async_test
async def test_response_of_callee_uses_the_live_id(tmp_path: Path) -> None:
    recorded_call().write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    assert (counts(replayer), counts(replayer, "request")) == ({EQUAL: 2}, {EQUAL: 1})


@async_test
async def test_callee_with_different_arguments_sends_recorded_response(tmp_path: Path) -> None:
    recorded_call(forwarded=b"[4,4]").write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert (counts(replayer), counts(replayer, "request")) == ({EQUAL: 2}, {DIFFERENT_BODY: 1})
    (difference,) = replayer.stats.differences
    assert (difference.what, difference.name, difference.recorded, difference.live) == (
        "request",
        "math.add",
        [4, 4],
        [2, 3],
    )


@async_test
async def test_missing_and_extra_hub_requests_are_reported(tmp_path: Path) -> None:
    story = recorded_call(arguments=b"[9,9]")
    story.sent("callee", "lrpm-json", b'[40,901,"math.sub",[1],{}]').received("callee", "lrpm-json", b"[41,901,1,{}]")
    story.write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place, answer_timeout=1.0)
    assert counts(replayer, "request") == {DIFFERENT_BODY: 1, MISSING: 1}
    # A call that was not forwarded in the recording.
    (tmp_path / "more").mkdir()
    story = JournalBuilder().received("callee", "lrpm-json", b"[2,null,{}]")
    story.received("callee", "lrpm-json", b'[40,1,"hub.register",{"name":"math.add"},{}]')
    story.sent("callee", "lrpm-json", b"[41,1,null,{}]").received("caller", "umq", b"M1\nmath:add\n[2,3]")
    # Responses of the hub are in order, so earlier requests have been forwarded by then.
    story.received("caller", "umq", b"M2\nhub:echo\n1").received("caller", "umq", b"M3\nhub:echo\n1")
    story.sent("caller", "umq", b"R3\n1").mark("caller", "umq", "close")
    story.received("callee", "lrpm-json", b'[40,2,"hub.echo",1,{}]').sent("callee", "lrpm-json", b"[41,2,1,{}]")
    story.mark("callee", "lrpm-json", "close").write(tmp_path / "more")
    async with hub() as place:
        replayer = await replayed(tmp_path / "more", place, answer_timeout=1.0)
    assert counts(replayer, "request") == {EXTRA: 1}
    assert counts(replayer) == {EQUAL: 3, EXTRA: 1}


@async_test
async def test_calls_open_at_the_end_are_not_differences(tmp_path: Path) -> None:
    story = (
        recorded_call().received("caller", "umq", b"M2\nmath:add\n[4,5]").received("caller", "umq", b"M3\nhub:echo\n1")
    )
    story.write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    assert (counts(replayer), replayer.stats.open_at_end) == ({EQUAL: 2}, 2)


@async_test
async def test_shared_callees_may_swap_requests(tmp_path: Path) -> None:
    story = JournalBuilder()
    for callee in ("one", "two"):
        story.received(callee, "lrpm-json", b"[2,null,{}]")
        story.received(callee, "lrpm-json", b'[40,1,"hub.register",{"name":"math.add","share":"round_robin"},{}]')
        story.sent(callee, "lrpm-json", b"[41,1,null,{}]")
    for number in range(4):
        # Not in round-robin order, as a hub would distribute them.
        callee = "two" if number < 2 else "one"
        story.received("caller", "umq", b"M%d\nmath:add\n[%d]" % (number, number))
        story.sent(callee, "lrpm-json", b'[40,%d,"math.add",[%d],{}]' % (50 + number, number))
        story.received(callee, "lrpm-json", b"[41,%d,%d,{}]" % (50 + number, number))
        story.sent("caller", "umq", b"R%d\n%d" % (number, number))
    story.write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    assert counts(replayer, "request") == {EQUAL: 4}


@async_test
async def test_incomplete_frames_are_counted_as_unsent(tmp_path: Path) -> None:
    story = JournalBuilder().received("s", "umq", b"H1\n***")
    story.received("s", "umq", b"M1\nhub:echo\n[1,", size=99).sent("s", "umq", b"R1\n[1,")
    story.received("s", "umq", None, size=99).sent("s", "umq", b"R2\n3")
    story.received("s", "umq", b"Stoken\n***")
    story.received("s", "umq", b'M3\nhub:echo\n{"password":"***"}').sent("s", "umq", b'R3\n{"password":"***"}')
    story.received("s", "umq", b"M4\nhub:echo\n4").sent("s", "umq", b"R4\n", size=99)
    story.received("m", "mqtt-rpc", b"", channel="/a").received("z", "nq", b"[]", transport="zmq")
    story.write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    assert counts(replayer) == {EQUAL: 2}
    assert dict(replayer.sender.unsent) == {"truncated in the journal": 1, "omitted from the journal": 1, "redacted": 1}
    assert replayer.redacted == 1
    assert [reason.partition(":")[0] for reason in replayer.skipped_sessions] == ["mqtt-rpc/mqtt", "nq/zmq"]


@async_test
async def test_redacted_value_equals_any_value(tmp_path: Path) -> None:
    story = JournalBuilder().received("s", "lrpm-json", b"[2,null,{}]")
    story.received("s", "lrpm-json", b'[40,1,"hub.echo",{"a":1,"b":[2]},{}]')
    story.sent("s", "lrpm-json", b'[41,1,{"a":"***","b":[2]},{}]').write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert counts(replayer) == {EQUAL: 1}


@async_test
async def test_missing_and_extra_events_are_counted(tmp_path: Path) -> None:
    story = JournalBuilder().received("s", "umq", b"H1\n").received("s", "umq", b"M1\nhub:subscribe\nnews\n1")
    story.sent("s", "umq", b'R1\n{"id":"1"}')
    for number, (recorded, published) in enumerate([("a", "a"), ("b", "c"), ("d", "d")], 2):
        story.received("s", "umq", f"M{number}\nhub:publish\nnews\n{published}".encode())
        story.sent("s", "umq", f"T1\n{recorded}".encode()).sent("s", "umq", f"R{number}\n9".encode())
    story.write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place, answer_timeout=1.0)
    assert counts(replayer, "event") == {EQUAL: 2, MISSING: 1, EXTRA: 1}
    assert counts(replayer) == {EQUAL: 4}


@async_test
async def test_sessions_authenticate_with_the_given_token(tmp_path: Path) -> None:
    identity = IdentitySettings(name="ann", token=Secret(TOKEN))
    guarded = replace(settings(), auth=AuthSettings(anonymous="never", identity=(identity,)))
    async with recording(tmp_path, base=guarded) as place:
        for url in URLS.values():
            async with fiveways.connect(url.format(port=place.port), token=TOKEN) as peer:
                assert await peer.call("hub.echo", "hello") == "hello"
    async with hub(guarded) as place:
        replayer = await replayed(tmp_path, place, token=TOKEN)
        assert replayer.stats.differences == []
        assert counts(replayer) == {EQUAL: len(URLS)}
        replayer = await replayed(tmp_path, place, token="wrong")  # noqa: S106
    assert sum(replayer.stats.lost.values()) == len(URLS)
    assert not replayer.stats.is_equal


@async_test
async def test_resumable_session_continues_over_another_connection(tmp_path: Path) -> None:
    story = JournalBuilder()
    for link in (1, 2):
        session = f"q.{link}"
        story.mark(session, "nq", "open", peer="q")
        story.received(session, "nq", b'{"t":"hub-set","r":"k%d","d":{"name":"n","value":1}}' % link, peer="q")
        story.sent(session, "nq", b'{"a":"b%d","i":"k%d","d":null}' % (link, link), peer="q")
        story.received(session, "nq", b'[{"i":"b%d"}]' % link, peer="q")
        # A retransmission is not another request.
        story.received(session, "nq", b'{"t":"hub-set","r":"k%d","d":{"name":"n","value":1}}' % link, peer="q")
        story.mark(session, "nq", "close", peer="q")
    story.received("q.3", "nq", b'{"t":"hub-get","r":"k9","d":{"name":"n"}}', peer="q")
    story.sent("q.3", "nq", b'{"a":"b9","i":"k9","d":1}', peer="q").write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    assert (replayer.sessions, counts(replayer)) == (1, {EQUAL: 3})


@async_test
async def test_zeromq_session_is_replayed_with_zmq_url(tmp_path: Path) -> None:
    async with recording(tmp_path, base=with_zmq()) as place:
        url = next(url for _, url in place.server.urls if url.startswith("nq+zmq"))
        async with fiveways.connect(url) as peer:
            assert await peer.call("hub.echo", "hello") == "hello"
    async with hub(with_zmq()) as place:
        url = next(url for _, url in place.server.urls if url.startswith("nq+zmq"))
        replayer = await replayed(tmp_path, place, zmq=url)
        assert replayer.stats.differences == []
        assert counts(replayer) == {EQUAL: 1}


@async_test
async def test_max_frames_limits_the_replay(tmp_path: Path) -> None:
    story = JournalBuilder().received("s", "umq", b"H1\n")
    for number in range(100):
        story.received("s", "umq", b"M%d\nhub:echo\n1" % number).sent("s", "umq", b"R%d\n1" % number)
    story.write(tmp_path)
    async with hub() as place:
        replayer = await replayed(tmp_path, place, max_frames=10)
    assert (replayer.sender.sent, counts(replayer)) == (10, {EQUAL: 10})


@async_test
async def test_sessions_are_selected_by_name_and_protocol(tmp_path: Path) -> None:
    story = JournalBuilder()
    for session, protocol, frame, answer in (
        ("one", "umq", b"M1\nhub:echo\n1", b"R1\n1"),
        ("other", "umq", b"M1\nhub:echo\n1", b"R1\n1"),
        ("one-too", "umq36", b'C1:["hub.echo",1]', b"R1:1"),
    ):
        story.received(session, protocol, frame).sent(session, protocol, answer)
    story.write(tmp_path)
    async with hub() as place:
        assert (await replayed(tmp_path, place, session="one")).sessions == 2
        assert (await replayed(tmp_path, place, protocol="umq")).sessions == 2
        replayer = await replayed(tmp_path, place, session="one", protocol="umq")
    assert (replayer.sessions, counts(replayer)) == (1, {EQUAL: 1})


@async_test
async def test_speed_scales_recorded_delays(tmp_path: Path) -> None:
    story = JournalBuilder().received("s", "umq", b"M1\nhub:echo\n1").sent("s", "umq", b"R1\n1").wait(400)
    story.received("s", "umq", b"M2\nhub:echo\n2").sent("s", "umq", b"R2\n2").write(tmp_path)
    loop = asyncio.get_running_loop()
    async with hub() as place:
        durations = []
        for speed in (1.0, 2.0):
            started_at = loop.time()
            assert (await replayed(tmp_path, place, speed=speed)).stats.is_equal
            durations.append(loop.time() - started_at)
    assert durations[0] > 0.4
    assert durations[1] > 0.2


@async_test
async def test_unreachable_hub_is_reported(tmp_path: Path) -> None:
    recorded_call().write(tmp_path)
    async with hub() as place:
        pass
    replayer = await replayed(tmp_path, place)
    assert sum(replayer.stats.lost.values()) == 2
    assert not replayer.stats.is_equal


@async_test
async def test_protocol_violations_are_replayed(tmp_path: Path) -> None:
    async with recording(tmp_path) as place:
        for path, frame in (("/umq", "M1\nhub:ping\n"), ("/umq", "nonsense"), ("/lrpm", "[40"), ("/nq", '{"a":1}')):
            peer = await place.peer(path)
            peer.text(frame)
            assert await peer.heard()
            peer.leave()
    async with hub() as place:
        replayer = await replayed(tmp_path, place)
    assert replayer.stats.differences == []
    # The journal does not contain malformed frames.
    assert dict(replayer.sender.unsent) == {"omitted from the journal": 2}
    assert (replayer.sessions, counts(replayer, "event")) == (2, {EQUAL: 2})
