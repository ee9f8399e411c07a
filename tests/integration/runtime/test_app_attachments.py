"""Attachments of responses: received by an application, and sent by it late or not at all."""

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import fiveways
from fiveways.app import App, AttachmentError, Context, Reply
from fiveways.errors import CallFailed
from fiveways.settings.limits import LimitSettings
from tests.support.raw_peers import Place, hub, settings
from tests.support.waiting import until

app = App(show_errors=True)
gates: list[asyncio.Event] = []
"""The event that releases the current late attachment."""
ended: list[str] = []


@app.method("photo.relay")
async def relay(context: Context, method: str) -> Reply:
    """Fetch a photo from another method, and return it."""
    reply = await context.call_reply(method, {"size": 2})
    return Reply([reply.value, len(reply.attachments)], reply.attachments)


@app.method("photo.of_caller")
async def of_caller(context: Context) -> object:
    reply = await context.caller.call_reply("photo.get")
    return [reply.value, [len(data) for data in reply.attachments]]


@app.method("photo.failure")
async def failure(context: Context, method: str) -> object:
    try:
        return str(await context.call_reply(method))
    except CallFailed as exc:
        return [str(exc), exc.data]


async def _late(release: asyncio.Event) -> AsyncIterator[bytes]:
    try:
        yield b"one "
        await release.wait()
        yield b"two"
    finally:
        ended.append("late")


@app.method("photo.late")
async def late() -> Reply:
    gates.append(asyncio.Event())
    return Reply("first the text", [_late(gates[-1]), b"at once"])


@app.method("photo.many_sources")
async def many_sources(path: str) -> Reply:
    async def produced() -> bytes:
        await asyncio.sleep(0)
        return b"made"

    return Reply(
        "all",
        [b"bytes", bytearray(b"array"), Path(path), io.BytesIO(b"stream"), produced(), AttachmentError("withheld")],
    )


@app.method("photo.plain")
def text_source(path: str) -> Reply:
    return Reply("plain", [Path(path)])


@app.method("photo.broken")
async def broken() -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        raise OSError("the camera is gone")

    async def wrong_type() -> str:
        return "no bytes"

    return Reply("broken", [chunks(), Path("/no/such/file"), wrong_type()])


@app.method("photo.huge")
async def too_large() -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 16)

    return Reply("huge", [chunks()])


@app.method("photo.stuck")
async def stuck() -> Reply:
    return Reply("stuck", [_late(asyncio.Event())])


@app.method("photo.none")
async def failing() -> Reply:
    return Reply("none", [7])


def url(place: Place, protocol: str) -> str:
    name, _, encoding = protocol.partition("-")
    return f"{name}+ws://127.0.0.1:{place.port}/{name}" + (f"?encoding={encoding}" if encoding else "")


PROTOCOLS = ["umq", "umq36", "lrpm", "lrpm-cbor", "nq"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_call_reply_of_an_app_returns_the_attachments(protocol: str) -> None:
    async def check() -> None:
        async with hub(app=app) as place, fiveways.connect(url(place, protocol)) as peer:

            async def get(size: int = 1) -> Reply:
                return Reply("here", [bytes([7]) * size] * size)

            await peer.register("photo.get", get)
            reply = await peer.call_reply("photo.relay", ["photo.get"])
            assert reply == Reply(["here", 2], [b"\x07\x07", b"\x07\x07"])
            assert await peer.call("photo.of_caller") == ["here", [1]]

    asyncio.run(check())


def test_call_reply_of_an_app_fails_if_an_attachment_fails() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\nhub:register\nphoto:get")
            assert await peer.heard() == "R1\nnull"
            peer.text('M2\nphoto:failure\n["photo.get"]')
            assert await peer.heard() == "M1\nphoto:get\nnull"
            peer.text("A2\nR1\nhere")
            peer.binary(b"one")
            peer.text("-\nno film")
            text = "an attachment of the answer did not arrive: no film"
            assert json.loads((await peer.heard()).removeprefix("R2\n")) == [text, "here"]
            peer.text('M3\nphoto:failure\n["photo.get"]')
            assert await peer.heard() == "M2\nphoto:get\nnull"
            peer.text("R2\nwithout")
            assert "Reply(value='without'" in await peer.heard()

    asyncio.run(check())


def test_response_is_sent_before_its_late_attachment() -> None:
    async def check() -> None:
        gates.clear()
        async with hub(app=app) as place:
            peer, lrpm = await place.umq(), await place.lrpm()
            peer.text("M1\nphoto:late\n")
            assert await peer.heard() == "A2\nR1\nfirst the text"
            peer.text("M2\nhub:ping\n")
            assert await peer.heard() == "R2\npong"
            gates[0].set()
            assert [await peer.data(), await peer.data()] == [b"one two", b"at once"]
            # For an lrpm caller, the response waits for its attachments.
            lrpm.text('[40,300,"photo.late",null,{}]')
            await until(lambda: len(gates) == 2)
            gates[1].set()
            attached = [b64encode(data).decode() for data in (b"one two", b"at once")]
            assert json.loads(await lrpm.heard()) == [41, 300, "first the text", {"attachments": attached}]

    asyncio.run(check())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_attachments_come_from_files_streams_and_functions(protocol: str, tmp_path: Path) -> None:
    async def check() -> None:
        path = tmp_path / "photo"
        path.write_bytes(b"file")
        async with hub(app=app) as place, fiveways.connect(url(place, protocol)) as peer:
            with pytest.raises(CallFailed, match="withheld"):
                await peer.call_reply("photo.many_sources", [str(path)])
            assert await peer.call("photo.many_sources", [str(path)]) == "all"
            assert await peer.call_reply("photo.plain", [str(path)]) == Reply("plain", [b"file"])

    asyncio.run(check())


def test_sources_keep_their_order_and_a_failed_one_its_place(tmp_path: Path) -> None:
    async def check() -> None:
        path = tmp_path / "photo"
        path.write_bytes(bytes(2 << 20))
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text(f'M1\nphoto:many_sources\n["{path}"]')
            assert await peer.heard() == "A6\nR1\nall"
            assert [await peer.data(), await peer.data()] == [b"bytes", b"array"]
            size = 0
            while size < 2 << 20:  # a large attachment is fragmented
                size += len(await peer.data())
            assert [await peer.data(), await peer.data()] == [b"stream", b"made"]
            assert await peer.heard() == "-\nwithheld"

    asyncio.run(check())


def test_failed_attachment_is_reported_in_each_protocol() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            umq, umq36, lrpm = await place.umq(), await place.umq36(), await place.lrpm()
            texts = [
                "OSError: the camera is gone",
                "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'",
                "an attachment must be bytes, not str",
            ]
            umq.text("M1\nphoto:broken\n")
            assert await umq.heard() == "A3\nR1\nbroken"
            assert [await umq.heard() for _ in texts] == [f"-\n{text}" for text in texts]
            umq36.text('C1:["photo.broken"]')
            assert await umq36.heard() == "A3:R1:broken"
            assert [await umq36.heard() for _ in texts] == [f"-:{text}" for text in texts]
            lrpm.text('[40,300,"photo.broken",null,{}]')
            meta = json.loads(await lrpm.heard())[3]
            assert meta["attachments"] == [None, None, None]
            assert list(meta["attachment_errors"].values()) == texts

    asyncio.run(check())


def test_late_attachments_are_bounded_in_size_and_time() -> None:
    async def check() -> None:
        limits = LimitSettings(max_attachment=1 << 20, attachment_timeout=0.05)
        async with hub(settings(limits=limits), app) as place:
            peer = await place.umq()
            peer.text("M1\nphoto:huge\n")
            assert await peer.heard() == "A1\nR1\nhuge"
            assert await peer.heard() == "-\nlarger than 1048576 bytes"
            peer.text("M2\nphoto:stuck\n")
            assert await peer.heard() == "A1\nR2\nstuck"
            assert await peer.heard() == "-\nno progress for 0.05 seconds"

    asyncio.run(check())


def test_late_attachment_ends_with_its_caller() -> None:
    async def check() -> None:
        ended.clear()
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\nphoto:stuck\n")
            assert await peer.heard() == "A1\nR1\nstuck"
            peer.leave()
            await until(lambda: ended == ["late"])

    asyncio.run(check())


def test_late_attachments_end_with_the_hub() -> None:
    async def check() -> None:
        ended.clear()
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\nphoto:stuck\n")
            assert await peer.heard() == "A1\nR1\nstuck"
        assert ended == ["late"]

    asyncio.run(check())


def test_invalid_attachment_value_fails_the_call() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text("M1\nphoto:none\n")
            assert "an attachment must be bytes, not int" in await peer.heard()

    asyncio.run(check())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_client_with_an_app_sends_late_attachments(protocol: str, tmp_path: Path) -> None:
    async def check() -> None:
        path = tmp_path / "photo"
        path.write_bytes(b"file")
        async with hub() as place, fiveways.connect(url(place, protocol)) as peer:
            await peer.serve(app)
            assert await peer.call_reply("photo.plain", [str(path)]) == Reply("plain", [b"file"])
            with pytest.raises(CallFailed, match="withheld"):
                await peer.call_reply("photo.many_sources", [str(path)])
            with pytest.raises(CallFailed, match="the caller is unknown"):
                await peer.call("photo.of_caller")

    asyncio.run(check())
