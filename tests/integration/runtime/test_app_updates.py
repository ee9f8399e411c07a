"""Updates of UMQ peers to an application in the hub's process."""

import asyncio

import pytest

import fiveways
from fiveways.app import App, Context, Update
from fiveways.app.handler_queue import MAX_EVENTS
from fiveways.errors import NotExecuted, Reason
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from tests.support.raw_peers import PATIENCE, Place, WirePeer, hub, settings
from tests.support.waiting import until

app = App()
received: list[tuple[str, object, int]] = []
"""Received updates in order; each test clears it."""
callers: list[fiveways.CallingPeer] = []
tasks: set[asyncio.Task[None]] = set()


@app.method("prices.publish")
async def publish(context: Context, topic_id: str) -> str:
    """Receive the caller's updates on a topic id of its choice until the topic is closed."""
    updates = context.caller.updates(topic_id)

    async def follow() -> None:
        async with updates:
            async for update in updates:
                attached = await update.attachments()
                received.append((update.topic_id, attached or update.data, update.missed))
                if update.data == "enough":
                    break
        received.append((topic_id, "over", 0))

    task = asyncio.create_task(follow())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return "accepted"


@app.method("prices.in_thread")
def in_thread(context: Context) -> str:
    with pytest.raises(RuntimeError, match="no running event loop"):
        context.caller.updates("feed")
    return "not here"


@app.method("prices.keep")
async def keep(context: Context) -> None:
    callers.append(context.caller)


@app.on_update("log.*")
async def logged(update: Update) -> None:
    received.append((update.topic_id, update.data, update.missed))
    if update.data == "who?":
        await update.caller.vars.set("you", update.caller.protocol)


async def publishing_peer(place: Place, topic_id: str = "feed") -> WirePeer:
    """A UMQ peer that publishes updates."""
    received.clear()
    peer = await place.umq()
    peer.text(f'M1\nprices:publish\n["{topic_id}"]')
    assert await peer.heard() == "R1\naccepted"
    return peer


async def connected_client(peer: WirePeer) -> fiveways.CallingPeer:
    callers.clear()
    peer.text("M1\nprices:keep\n")
    assert await peer.heard() == "R1\nnull"
    return callers[0]


def test_updates_of_a_umq_peer_are_read_until_it_closes_the_topic() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await publishing_peer(place)
            for text in ('{"price":1}', "two", ""):
                peer.text(f"Tfeed\n{text}")
            peer.text("A1\nTfeed\nattached")
            peer.binary(b"\x07")
            peer.text("Zfeed")
            await until(lambda: len(received) == 5)
            assert received == [
                ("feed", {"price": 1}, 0),
                ("feed", "two", 0),
                ("feed", "", 0),
                ("feed", [b"\x07"], 0),
                ("feed", "over", 0),
            ]
            peer.text("Tfeed\nlate")  # the topic is closed: UMQ1-12
            assert await peer.heard() == "Ufeed"

    asyncio.run(check())


def test_updates_of_a_umq36_peer_are_read_until_it_closes_the_topic() -> None:
    async def check() -> None:
        received.clear()
        async with hub(app=app) as place:
            peer = await place.umq36()
            peer.text('C1:["prices.publish","9A8Z"]')
            assert await peer.heard() == "R1:accepted"
            peer.text("T9A8Z: one")
            peer.text("D9A8Z:")
            await until(lambda: len(received) == 2)
            assert received == [("9A8Z", " one", 0), ("9A8Z", "over", 0)]
            peer.text("T9A8Z:late")  # UMQ36-a13
            assert await peer.heard() == "U9A8Z:"

    asyncio.run(check())


def test_closed_reader_unsubscribes() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await publishing_peer(place)
            peer.text("Tfeed\nenough")
            assert await peer.heard() == "Ufeed"
            peer.text("Tfeed\nlate")  # UMQ1-13
            assert await peer.heard() == "Ufeed"
            assert received == [("feed", "enough", 0), ("feed", "over", 0)]

    asyncio.run(check())


def test_updates_end_with_their_peer() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await publishing_peer(place)
            peer.text("Tfeed\none")
            peer.leave()
            await until(lambda: len(received) == 2)
            assert received == [("feed", "one", 0), ("feed", "over", 0)]

    asyncio.run(check())


def test_unrequested_updates_are_answered_by_unsubscribe() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            owner, other = await publishing_peer(place), await place.umq()
            other.text("Tfeed\nnot mine")
            assert await other.heard() == "Ufeed"
            other.text("A1\nTother\nx")
            other.binary(b"x")
            assert await other.heard() == "Uother"
            owner.text("Tfeed\nmine")
            await until(lambda: received == [("feed", "mine", 0)])

    asyncio.run(check())


def test_handler_receives_updates_that_match_its_pattern() -> None:
    async def check() -> None:
        received.clear()
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("Tlog.disk\nfull")
            peer.text("Tlog.disk\nwho?")
            assert await peer.heard() == "Syou\numq"
            peer.text("Tlogger\nx")
            assert await peer.heard() == "Ulogger"
            assert received == [("log.disk", "full", 0), ("log.disk", "who?", 0)]
            peer.text("Zlog.disk")

    asyncio.run(check())


def test_updates_of_a_peer_without_permission_reach_no_handler() -> None:
    async def check() -> None:
        received.clear()
        auth = AuthSettings(
            anonymous="never",
            identity=(IdentitySettings(name="ann", token=Secret("secret"), call=("*",), publish=("prices.*",)),),
        )
        async with hub(settings(auth=auth), app) as place:
            peer = await place.umq("secret")
            peer.text("Tlog.disk\nfull")
            assert await peer.heard() == "Ulog.disk"
            # A topic id agreed with a method needs no further permission.
            peer.text('M1\nprices:publish\n["feed"]')
            assert await peer.heard() == "R1\naccepted"
            peer.text("Tfeed\none")
            await until(lambda: received == [("feed", "one", 0)])

    asyncio.run(check())


def test_slow_reader_gets_the_number_of_missed_updates() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            updates = (await connected_client(peer)).updates("feed")
            for number in range(MAX_EVENTS + 3):
                peer.text(f"Tfeed\n{number}")
            peer.text("M2\nhub:ping\n")
            assert await peer.heard() == "R2\npong"
            first = [await anext(updates) for _ in range(MAX_EVENTS)]
            assert [(update.data, update.missed) for update in first] == [(number, 0) for number in range(MAX_EVENTS)]
            peer.text("Tfeed\nlast")
            last = await asyncio.wait_for(anext(updates), PATIENCE)
            assert (last.data, last.missed) == ("last", 3)

    asyncio.run(check())


def test_topic_ids_are_bounded_and_belong_to_one_reader() -> None:
    async def check() -> None:
        async with hub(settings(limits=LimitSettings(max_subscriptions=2)), app) as place:
            caller = await connected_client(await place.umq())
            first = caller.updates("a")
            caller.updates("b")
            for topic_id, reason in (
                ("a", Reason.BAD_ARGUMENTS),
                ("c", Reason.OVERLOADED),
                ("", Reason.BAD_ARGUMENTS),
                ("x\ny", Reason.BAD_ARGUMENTS),
            ):
                with pytest.raises(NotExecuted) as caught:
                    caller.updates(topic_id)
                assert caught.value.reason is reason
            first.close()
            caller.updates("c")

    asyncio.run(check())


@pytest.mark.parametrize("protocol", ["lrpm", "nq"])
def test_protocol_without_updates_is_an_error(protocol: str) -> None:
    async def check() -> None:
        callers.clear()
        async with (
            hub(app=app) as place,
            fiveways.connect(f"{protocol}+ws://127.0.0.1:{place.port}/{protocol}") as peer,
        ):
            await peer.call("prices.keep")
            with pytest.raises(NotExecuted, match="publish on a topic of the hub"):
                callers[0].updates("feed")

    asyncio.run(check())


def test_sync_function_cannot_receive_updates() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\nprices:in_thread\n")
            assert await peer.heard() == "R1\nnot here"
            peer.text("Tfeed\nx")
            assert await peer.heard() == "Ufeed"

    asyncio.run(check())


def test_updates_end_with_the_hub() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            await publishing_peer(place)
        await until(lambda: received == [("feed", "over", 0)])

    asyncio.run(check())
