"""Those who do not behave: garbage, wrong tokens, requests that are said again and again, and one who stops reading."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from fiveways.client.connect import connect
from fiveways.errors import FivewaysError, Refused
from fiveways.traffic import raw
from fiveways.traffic.acts import FLOOD
from fiveways.traffic.raw import BINARY, TEXT, Gone, RawLink
from fiveways.traffic.tally import Tally
from fiveways.traffic.target import Target

_GUESS: Final = "nobody-has-given-out-this-one"
_PATIENCE: Final = 5.0
_REACTION: Final = 1.0
"""Seconds after which a hub that has not closed the link will not do so."""
_QUIET: Final = 0.5
"""Seconds without a word after which a reader has all there is."""
_SOCKETS: Final = (
    ("umq", "/umq", "umq.1", b"?!\x00 this is no UMQ", TEXT),
    ("umq", "/umq", "umq.1", b"M1\nhub:ping\nbefore the hello", TEXT),
    ("umq36", "/umq36", "umq36.1", b"C:::[", TEXT),
    ("umq36", "/umq36", "umq36.1", b"\xff\xfe\xfd", TEXT),
    ("lrpm-json", "/lrpm", "lrpm.json", b'[2, null, {"half', TEXT),
    ("lrpm-json", "/lrpm", "lrpm.json", b'[40, 1, "hub.ping", null, {}]', TEXT),
    ("lrpm-cbor", "/lrpm", "lrpm.cbor", b"\x83\x02\xff\xff", BINARY),
    ("nq+ws", "/nq", "nq.1", b'{"t": "hub-ping", "r": ', TEXT),
    ("nq+ws", "/nq", "nq.1", b'[{"r": "no-target"}, 17, "text"]', TEXT),
)
"""Who says what, and where: no hub can make sense of it."""
_REQUESTS: Final = (("GET", "/nowhere", b""), ("POST", "/nq", b'{"t":'), ("BREW", "/umq", b""))


async def malformed(target: Target, tally: Tally, number: int) -> None:
    """Say something that nobody understands: one of the list, all in turn."""
    index = number % (len(_SOCKETS) + len(_REQUESTS))
    if index >= len(_SOCKETS):
        method, path, body = _REQUESTS[index - len(_SOCKETS)]
        try:
            await raw.asked(target, method, path, body)
            tally.add("http", "malformed", "failed")
        except (Gone, TimeoutError):
            tally.add("http", "malformed", "closed")
        return
    protocol, path, subprotocol, payload, opcode = _SOCKETS[index]
    try:
        async with raw.opened(target, path, subprotocol=subprotocol) as link, asyncio.timeout(_REACTION):
            link.send(payload, opcode)
            while True:
                await link.receive()
    except Gone:
        tally.add(protocol, "malformed", "closed")
    except TimeoutError:
        tally.add(protocol, "malformed", "failed")  # it complained, or said nothing, and goes on


async def stranger(target: Target, tally: Tally, speaker: str) -> None:
    """Try to come in with a token that nobody has given out."""
    try:
        async with connect(target.url(speaker), token=_GUESS, reconnect=False, timeout=_PATIENCE) as peer:
            await peer.call("hub.ping", timeout=_PATIENCE)
    except Refused:
        tally.add(speaker, "login", "refused")
    except FivewaysError as exc:
        tally.failed(speaker, "login", exc)
    else:
        tally.add(speaker, "login", "result")


async def repeater(target: Target, tally: Tally, service: str, number: int) -> None:
    """Ask in NQ as one does over bad links: say it three times, lose the link, come back and say it again."""
    request = json.dumps({"t": f"{service}-look_up", "r": f"again-{number}", "d": {"item": number}})
    try:
        async with asyncio.timeout(_PATIENCE):
            async with raw.opened(target, "/nq", subprotocol="nq.1") as link:
                peer = await _named(link)
                for _ in range(3):
                    link.send(request)
                await link.receive()  # that it is accepted, or answered
            async with raw.opened(target, f"/nq?peer={peer}", subprotocol="nq.1") as link:
                link.send(request)
                backchannel = await _answered(link, f"again-{number}")
                link.send(json.dumps({"i": backchannel}))
                link.send(request)  # of no use to anybody: it is answered and acknowledged
                link.send('{"e":{"type":"sys","fatal":true,"note":"bye"}}')
                with suppress(Gone):
                    while True:
                        await link.receive()
    except (Gone, ValueError) as exc:
        tally.add("nq+ws", "repeated", "lost")
        tally.notes.append(f"a repeated request came to nothing: {exc}")
    except TimeoutError:
        tally.add("nq+ws", "repeated", "timeout")
    else:
        tally.add("nq+ws", "repeated", "result")


async def _named(link: RawLink) -> str:
    """Return the id that the hub gives to us."""
    for message in _messages(await link.receive()):
        match message:
            case {"e": {"note": "peer", "args": [str(peer), *_]}}:
                return peer
    raise ValueError("the hub told no id")


async def _answered(link: RawLink, request: str) -> str:
    """Wait for the answer to a request; return what it is acknowledged by."""
    while True:
        for message in _messages(await link.receive()):
            match message:
                case {"a": str(backchannel), "i": str(asked), "d": _} if asked == request:
                    return backchannel
                case {"i": str(asked), "e": {"fatal": True} as error} if asked == request:
                    raise ValueError(f"the hub says {error}")


def _messages(data: bytes) -> list[object]:
    said = json.loads(data)
    return said if isinstance(said, list) else [said]


@asynccontextmanager
async def sleeper(target: Target, tally: Tally, last: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Have one who subscribes and does not read; in the end it reads what the hub has kept for it.

    How much it missed stands in the next event after that, which `last` publishes.
    """
    async with AsyncExitStack() as stack:
        link: RawLink | None = None
        try:
            link = await stack.enter_async_context(raw.opened(target, "/umq", subprotocol="umq.1", slow=True))
            async with asyncio.timeout(_PATIENCE):
                link.send("H1.0.0\n")
                await link.receive()
                link.send(f'M1\nhub:subscribe\n{{"topic":"{FLOOD}","id":"flood","envelope":true,"when_full":"skip"}}')
                await link.receive()
        except (Gone, TimeoutError) as exc:
            tally.notes.append(f"nobody reads slowly: {exc or 'no answer'}")
            link = None
        yield
        if link is not None:
            await _awake(link, tally)
            await last()
            await _awake(link, tally)


async def _awake(link: RawLink, tally: Tally) -> None:
    with suppress(Gone, TimeoutError):
        while True:
            async with asyncio.timeout(_QUIET):
                message = await link.receive()
            _, _, body = message.partition(b"\n")
            tally.events["slow reader"] += 1
            tally.missed["slow reader"] += int(json.loads(body).get("missed", 0))
