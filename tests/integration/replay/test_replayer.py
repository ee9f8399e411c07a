"""What a real hub has recorded is sent to another one: all comes back as it was, or what differs is told."""

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
from tests.integration.replay.replaying import URLS, bounded, recording, replayed, with_zmq
from tests.support.journal_scenarios import Story
from tests.support.raw_peers import hub, settings

TOKEN = "geheim"  # noqa: S105  not much of a secret


def worker(number: int) -> fiveways.App:
    """Methods of one callee."""
    app = fiveways.App()

    @app.method(f"w{number}.twice")
    async def twice(n: int) -> int:
        return 2 * n

    @app.method(f"w{number}.fail")
    async def fail() -> None:
        raise Fail("no luck", name="demo.err.luck", data={"luck": 0})

    @app.method(f"w{number}.count")
    async def count(n: int) -> AsyncIterator[int]:
        for each in range(n):
            yield each

    @app.method(f"w{number}.swap")
    async def swap(context: Context) -> Reply:
        attachments = await context.attachments()
        return Reply(len(attachments), attachments=attachments[::-1])

    return app


def counts(player: Replayer, what: str = "call") -> dict[str, int]:
    return dict(player.stats.counts[what])


def a_method(answer: object) -> fiveways.App:
    """A hub's own method, with this answer."""
    app = fiveways.App()

    @app.method("demo.ask")
    async def ask() -> object:
        if answer is None:
            await asyncio.Event().wait()
        return answer

    return app


@bounded
async def test_callers_and_callees_of_all_protocols_are_held_again(tmp_path: Path) -> None:
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
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    assert player.stats.is_equal
    assert player.sessions == 2 * len(URLS)
    # What callees offer comes to the calls, and how they do that is theirs.
    assert counts(player)[EQUAL] > 6 * (6 * 5 + 1) + 2
    assert counts(player, "request")[EQUAL] == 6 * 6 * 5 + 2
    assert not player.sender.unsent


@bounded
async def test_topics_callbacks_and_work_queues_are_held_again(tmp_path: Path) -> None:
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
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    assert player.stats.is_equal


@bounded
async def test_what_a_hub_answers_differently_is_told(tmp_path: Path) -> None:
    async with recording(tmp_path, a_method("then")) as place:
        for url in URLS.values():
            async with fiveways.connect(url.format(port=place.port)) as peer:
                assert await peer.call("demo.ask") == "then"
    async with hub(app=a_method("then")) as place:
        assert (await replayed(tmp_path, place)).stats.is_equal
    async with hub(app=a_method("now")) as place:
        player = await replayed(tmp_path, place)
    assert counts(player) == {DIFFERENT_BODY: len(URLS)}
    first = player.stats.differences[0]
    assert (first.name, first.recorded, first.live) == (
        "demo.ask",
        {"status": "result", "body": "then"},
        {"status": "result", "body": "now"},
    )
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert counts(player) == {DIFFERENT_STATUS: len(URLS)}
    async with hub(app=a_method(None)) as place:
        player = await replayed(tmp_path, place, answer_timeout=1.0)
    assert counts(player) == {MISSING: len(URLS)}
    assert not player.stats.is_equal


def across(recorded: int = 900, *, asked: bytes = b"[2,3]", called: bytes = b"[2,3]") -> Story:
    """A call of then, with an id on the callee's leg that no hub will use again."""
    story = Story().heard("callee", "lrpm-json", b"[2,null,{}]")
    story.heard("callee", "lrpm-json", b'[40,1,"hub.register",{"name":"math.add"},{}]')
    story.said("callee", "lrpm-json", b"[41,1,null,{}]").heard("caller", "umq", b"H1\n***")
    story.heard("caller", "umq", b"M1\nmath:add\n%b" % called, "7")
    story.said("callee", "lrpm-json", b'[40,%d,"math.add",%b,{}]' % (recorded, asked), "7")
    return story.heard("callee", "lrpm-json", b"[41,%d,5,{}]" % recorded, "7").said("caller", "umq", b"R1\n5", "7")


@bounded
async def test_a_callee_answers_under_the_id_of_now(tmp_path: Path) -> None:
    across().write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    assert (counts(player), counts(player, "request")) == ({EQUAL: 2}, {EQUAL: 1})


@bounded
async def test_a_callee_that_is_asked_something_else_answers_as_then(tmp_path: Path) -> None:
    across(asked=b"[4,4]").write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert (counts(player), counts(player, "request")) == ({EQUAL: 2}, {DIFFERENT_BODY: 1})
    (found,) = player.stats.differences
    assert (found.what, found.name, found.recorded, found.live) == ("request", "math.add", [4, 4], [2, 3])


@bounded
async def test_what_was_not_asked_then_or_is_not_now_is_told(tmp_path: Path) -> None:
    story = across(called=b"[9,9]")
    story.said("callee", "lrpm-json", b'[40,901,"math.sub",[1],{}]').heard("callee", "lrpm-json", b"[41,901,1,{}]")
    story.write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place, answer_timeout=1.0)
    assert counts(player, "request") == {DIFFERENT_BODY: 1, MISSING: 1}
    # Somebody asks who did not then.
    (tmp_path / "more").mkdir()
    story = Story().heard("callee", "lrpm-json", b"[2,null,{}]")
    story.heard("callee", "lrpm-json", b'[40,1,"hub.register",{"name":"math.add"},{}]')
    story.said("callee", "lrpm-json", b"[41,1,null,{}]").heard("caller", "umq", b"M1\nmath:add\n[2,3]")
    # Answers of the hub itself come in order, so that what was asked before them has come with them.
    story.heard("caller", "umq", b"M2\nhub:echo\n1").heard("caller", "umq", b"M3\nhub:echo\n1")
    story.said("caller", "umq", b"R3\n1").mark("caller", "umq", "close")
    story.heard("callee", "lrpm-json", b'[40,2,"hub.echo",1,{}]').said("callee", "lrpm-json", b"[41,2,1,{}]")
    story.mark("callee", "lrpm-json", "close").write(tmp_path / "more")
    async with hub() as place:
        player = await replayed(tmp_path / "more", place, answer_timeout=1.0)
    assert counts(player, "request") == {EXTRA: 1}
    assert counts(player) == {EQUAL: 3, EXTRA: 1}


@bounded
async def test_a_recording_may_end_in_the_middle(tmp_path: Path) -> None:
    story = across().heard("caller", "umq", b"M2\nmath:add\n[4,5]").heard("caller", "umq", b"M3\nhub:echo\n1")
    story.write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    assert (counts(player), player.stats.open_at_end) == ({EQUAL: 2}, 2)


@bounded
async def test_two_who_do_the_same_may_change_places(tmp_path: Path) -> None:
    story = Story()
    for callee in ("one", "two"):
        story.heard(callee, "lrpm-json", b"[2,null,{}]")
        story.heard(callee, "lrpm-json", b'[40,1,"hub.register",{"name":"math.add","share":"round_robin"},{}]')
        story.said(callee, "lrpm-json", b"[41,1,null,{}]")
    for number in range(4):
        # Not in turn, as a hub would do it.
        callee = "two" if number < 2 else "one"
        story.heard("caller", "umq", b"M%d\nmath:add\n[%d]" % (number, number))
        story.said(callee, "lrpm-json", b'[40,%d,"math.add",[%d],{}]' % (50 + number, number))
        story.heard(callee, "lrpm-json", b"[41,%d,%d,{}]" % (50 + number, number))
        story.said("caller", "umq", b"R%d\n%d" % (number, number))
    story.write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    assert counts(player, "request") == {EQUAL: 4}


@bounded
async def test_what_the_journal_lacks_cannot_be_sent_and_is_counted(tmp_path: Path) -> None:
    story = Story().heard("s", "umq", b"H1\n***")
    story.heard("s", "umq", b"M1\nhub:echo\n[1,", size=99).said("s", "umq", b"R1\n[1,")
    story.heard("s", "umq", None, size=99).said("s", "umq", b"R2\n3")
    story.heard("s", "umq", b"Stoken\n***")
    story.heard("s", "umq", b'M3\nhub:echo\n{"password":"***"}').said("s", "umq", b'R3\n{"password":"***"}')
    story.heard("s", "umq", b"M4\nhub:echo\n4").said("s", "umq", b"R4\n", size=99)
    story.heard("m", "mqtt-rpc", b"", channel="/a").heard("z", "nq", b"[]", transport="zmq")
    story.write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    assert counts(player) == {EQUAL: 2}
    assert dict(player.sender.unsent) == {"cut in the journal": 1, "left out of the journal": 1, "redacted": 1}
    assert player.redacted == 1
    assert [why.partition(":")[0] for why in player.skipped_sessions] == ["mqtt-rpc/mqtt", "nq/zmq"]


@bounded
async def test_redacted_values_may_be_anything(tmp_path: Path) -> None:
    story = Story().heard("s", "lrpm-json", b"[2,null,{}]")
    story.heard("s", "lrpm-json", b'[40,1,"hub.echo",{"a":1,"b":[2]},{}]')
    story.said("s", "lrpm-json", b'[41,1,{"a":"***","b":[2]},{}]').write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert counts(player) == {EQUAL: 1}


@bounded
async def test_events_that_do_not_come_and_others_that_do(tmp_path: Path) -> None:
    story = Story().heard("s", "umq", b"H1\n").heard("s", "umq", b"M1\nhub:subscribe\nnews\n1")
    story.said("s", "umq", b'R1\n{"id":"1"}')
    for number, (told, sent) in enumerate([("a", "a"), ("b", "c"), ("d", "d")], 2):
        story.heard("s", "umq", f"M{number}\nhub:publish\nnews\n{sent}".encode())
        story.said("s", "umq", f"T1\n{told}".encode()).said("s", "umq", f"R{number}\n9".encode())
    story.write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place, answer_timeout=1.0)
    assert counts(player, "event") == {EQUAL: 2, MISSING: 1, EXTRA: 1}
    assert counts(player) == {EQUAL: 4}


@bounded
async def test_a_session_shows_the_token_that_it_is_given(tmp_path: Path) -> None:
    known = IdentitySettings(name="ann", token=Secret(TOKEN))
    guarded = replace(settings(), auth=AuthSettings(anonymous="never", identity=(known,)))
    async with recording(tmp_path, more=guarded) as place:
        for url in URLS.values():
            async with fiveways.connect(url.format(port=place.port), token=TOKEN) as peer:
                assert await peer.call("hub.echo", "hello") == "hello"
    async with hub(guarded) as place:
        player = await replayed(tmp_path, place, token=TOKEN)
        assert player.stats.differences == []
        assert counts(player) == {EQUAL: len(URLS)}
        player = await replayed(tmp_path, place, token="wrong")  # noqa: S106
    assert sum(player.stats.lost.values()) == len(URLS)
    assert not player.stats.is_equal


@bounded
async def test_a_conversation_goes_on_over_another_link(tmp_path: Path) -> None:
    story = Story()
    for link in (1, 2):
        session = f"q.{link}"
        story.mark(session, "nq", "open", peer="q")
        story.heard(session, "nq", b'{"t":"hub-set","r":"k%d","d":{"name":"n","value":1}}' % link, peer="q")
        story.said(session, "nq", b'{"a":"b%d","i":"k%d","d":null}' % (link, link), peer="q")
        story.heard(session, "nq", b'[{"i":"b%d"}]' % link, peer="q")
        # A repeat is not another request.
        story.heard(session, "nq", b'{"t":"hub-set","r":"k%d","d":{"name":"n","value":1}}' % link, peer="q")
        story.mark(session, "nq", "close", peer="q")
    story.heard("q.3", "nq", b'{"t":"hub-get","r":"k9","d":{"name":"n"}}', peer="q")
    story.said("q.3", "nq", b'{"a":"b9","i":"k9","d":1}', peer="q").write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    assert (player.sessions, counts(player)) == (1, {EQUAL: 3})


@bounded
async def test_zeromq_is_held_again_where_it_is_said_where(tmp_path: Path) -> None:
    async with recording(tmp_path, more=with_zmq()) as place:
        url = next(url for _, url in place.server.urls if url.startswith("nq+zmq"))
        async with fiveways.connect(url) as peer:
            assert await peer.call("hub.echo", "hello") == "hello"
    async with hub(with_zmq()) as place:
        url = next(url for _, url in place.server.urls if url.startswith("nq+zmq"))
        player = await replayed(tmp_path, place, zmq=url)
        assert player.stats.differences == []
        assert counts(player) == {EQUAL: 1}


@bounded
async def test_no_more_is_sent_than_was_said(tmp_path: Path) -> None:
    story = Story().heard("s", "umq", b"H1\n")
    for number in range(100):
        story.heard("s", "umq", b"M%d\nhub:echo\n1" % number).said("s", "umq", b"R%d\n1" % number)
    story.write(tmp_path)
    async with hub() as place:
        player = await replayed(tmp_path, place, max_frames=10)
    assert (player.sender.sent, counts(player)) == (10, {EQUAL: 10})


@bounded
async def test_only_some_sessions_are_held_again(tmp_path: Path) -> None:
    story = Story()
    for session, protocol, frame, answer in (
        ("one", "umq", b"M1\nhub:echo\n1", b"R1\n1"),
        ("other", "umq", b"M1\nhub:echo\n1", b"R1\n1"),
        ("one-too", "umq36", b'C1:["hub.echo",1]', b"R1:1"),
    ):
        story.heard(session, protocol, frame).said(session, protocol, answer)
    story.write(tmp_path)
    async with hub() as place:
        assert (await replayed(tmp_path, place, session="one")).sessions == 2
        assert (await replayed(tmp_path, place, protocol="umq")).sessions == 2
        player = await replayed(tmp_path, place, session="one", protocol="umq")
    assert (player.sessions, counts(player)) == (1, {EQUAL: 1})


@bounded
async def test_the_pace_of_then_is_kept_or_not(tmp_path: Path) -> None:
    story = Story().heard("s", "umq", b"M1\nhub:echo\n1").said("s", "umq", b"R1\n1").wait(400)
    story.heard("s", "umq", b"M2\nhub:echo\n2").said("s", "umq", b"R2\n2").write(tmp_path)
    loop = asyncio.get_running_loop()
    async with hub() as place:
        took = []
        for speed in (1.0, 2.0):
            began = loop.time()
            assert (await replayed(tmp_path, place, speed=speed)).stats.is_equal
            took.append(loop.time() - began)
    assert took[0] > 0.4
    assert took[1] > 0.2


@bounded
async def test_a_hub_that_is_away_is_told_of(tmp_path: Path) -> None:
    across().write(tmp_path)
    async with hub() as place:
        pass
    player = await replayed(tmp_path, place)
    assert sum(player.stats.lost.values()) == 2
    assert not player.stats.is_equal


@bounded
async def test_who_broke_the_rules_then_breaks_them_again(tmp_path: Path) -> None:
    async with recording(tmp_path) as place:
        for path, words in (("/umq", "M1\nhub:ping\n"), ("/umq", "nonsense"), ("/lrpm", "[40"), ("/nq", '{"a":1}')):
            peer = await place.peer(path)
            peer.text(words)
            assert await peer.heard()
            peer.leave()
    async with hub() as place:
        player = await replayed(tmp_path, place)
    assert player.stats.differences == []
    # Malformed frames are not in the journal.
    assert dict(player.sender.unsent) == {"left out of the journal": 2}
    assert (player.sessions, counts(player, "event")) == (2, {EQUAL: 2})
