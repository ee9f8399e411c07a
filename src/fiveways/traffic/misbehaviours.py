"""Those who do not behave: garbage, wrong tokens, requests that are said again and again, and one who stops reading."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from fiveways.client.connect import connect
from fiveways.errors import FivewaysError, Refused
from fiveways.traffic import raw_websocket
from fiveways.traffic.actions import FLOOD_TOPIC
from fiveways.traffic.counts import TrafficCounts
from fiveways.traffic.raw_websocket import BINARY, TEXT, ConnectionGone, RawWebSocket
from fiveways.traffic.target import Target

_WRONG_CREDENTIAL: Final = "nobody-has-given-out-this-one"
_CALL_TIMEOUT: Final = 5.0
_CLOSE_TIMEOUT: Final = 1.0
"""Seconds after which a hub that has not closed the link will not do so."""
_IDLE_TIMEOUT: Final = 0.5
"""Seconds without a word after which a reader has all there is."""
_MALFORMED_FRAMES: Final = (
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
_MALFORMED_REQUESTS: Final = (("GET", "/nowhere", b""), ("POST", "/nq", b'{"t":'), ("BREW", "/umq", b""))


async def send_malformed(target: Target, tally: TrafficCounts, number: int) -> None:
    """Say something that nobody understands: one of the list, all in turn."""
    index = number % (len(_MALFORMED_FRAMES) + len(_MALFORMED_REQUESTS))
    if index >= len(_MALFORMED_FRAMES):
        method, path, body = _MALFORMED_REQUESTS[index - len(_MALFORMED_FRAMES)]
        try:
            await raw_websocket.send_http(target, method, path, body)
            tally.count("http", "malformed", "failed")
        except (ConnectionGone, TimeoutError):
            tally.count("http", "malformed", "closed")
        return
    protocol, path, subprotocol, payload, opcode = _MALFORMED_FRAMES[index]
    try:
        async with (
            raw_websocket.open_websocket(target, path, subprotocol=subprotocol) as link,
            asyncio.timeout(_CLOSE_TIMEOUT),
        ):
            link.send(payload, opcode)
            while True:
                await link.receive()
    except ConnectionGone:
        tally.count(protocol, "malformed", "closed")
    except TimeoutError:
        tally.count(protocol, "malformed", "failed")  # it complained, or said nothing, and goes on


async def connect_with_wrong_token(target: Target, tally: TrafficCounts, speaker: str) -> None:
    """Try to come in with a token that nobody has given out."""
    try:
        async with connect(
            target.url(speaker), token=_WRONG_CREDENTIAL, reconnect=False, timeout=_CALL_TIMEOUT
        ) as peer:
            await peer.call("hub.ping", timeout=_CALL_TIMEOUT)
    except Refused:
        tally.count(speaker, "login", "refused")
    except FivewaysError as exc:
        tally.count_error(speaker, "login", exc)
    else:
        tally.count(speaker, "login", "result")


async def repeat_request(target: Target, tally: TrafficCounts, service: str, number: int) -> None:
    """Ask in NQ as one does over bad links: say it three times, lose the link, come back and say it again."""
    request = json.dumps({"t": f"{service}-look_up", "r": f"again-{number}", "d": {"item": number}})
    try:
        async with asyncio.timeout(_CALL_TIMEOUT):
            async with raw_websocket.open_websocket(target, "/nq", subprotocol="nq.1") as link:
                peer = await _read_peer_id(link)
                for _ in range(3):
                    link.send(request)
                await link.receive()  # that it is accepted, or answered
            async with raw_websocket.open_websocket(target, f"/nq?peer={peer}", subprotocol="nq.1") as link:
                link.send(request)
                backchannel = await _read_backchannel(link, f"again-{number}")
                link.send(json.dumps({"i": backchannel}))
                link.send(request)  # of no use to anybody: it is answered and acknowledged
                link.send('{"e":{"type":"sys","fatal":true,"note":"bye"}}')
                with suppress(ConnectionGone):
                    while True:
                        await link.receive()
    except (ConnectionGone, ValueError) as exc:
        tally.count("nq+ws", "repeated", "lost")
        tally.notes.append(f"a repeated request came to nothing: {exc}")
    except TimeoutError:
        tally.count("nq+ws", "repeated", "timeout")
    else:
        tally.count("nq+ws", "repeated", "result")


async def _read_peer_id(link: RawWebSocket) -> str:
    """Return the id that the hub gives to us."""
    for message in _messages(await link.receive()):
        match message:
            case {"e": {"note": "peer", "args": [str(peer), *_]}}:
                return peer
    raise ValueError("the hub told no id")


async def _read_backchannel(link: RawWebSocket, request: str) -> str:
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
async def slow_consumer(
    target: Target, tally: TrafficCounts, last: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Have one who subscribes and does not read; in the end it reads what the hub has kept for it.

    How much it missed stands in the next event after that, which `last` publishes.
    """
    async with AsyncExitStack() as stack:
        link: RawWebSocket | None = None
        try:
            link = await stack.enter_async_context(
                raw_websocket.open_websocket(target, "/umq", subprotocol="umq.1", slow=True)
            )
            async with asyncio.timeout(_CALL_TIMEOUT):
                link.send("H1.0.0\n")
                await link.receive()
                link.send(
                    f'M1\nhub:subscribe\n{{"topic":"{FLOOD_TOPIC}","id":"flood","envelope":true,"when_full":"skip"}}'
                )
                await link.receive()
        except (ConnectionGone, TimeoutError) as exc:
            tally.notes.append(f"nobody reads slowly: {exc or 'no answer'}")
            link = None
        yield
        if link is not None:
            await _read_events(link, tally)
            await last()
            await _read_events(link, tally)


async def _read_events(link: RawWebSocket, tally: TrafficCounts) -> None:
    with suppress(ConnectionGone, TimeoutError):
        while True:
            async with asyncio.timeout(_IDLE_TIMEOUT):
                message = await link.receive()
            _, _, body = message.partition(b"\n")
            tally.events["slow reader"] += 1
            tally.missed["slow reader"] += int(json.loads(body).get("missed", 0))
