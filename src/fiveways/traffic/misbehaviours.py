"""Misbehaving peers: malformed frames, invalid tokens, repeated requests, and a slow consumer."""

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
"""Seconds to wait for the hub to close a connection."""
_IDLE_TIMEOUT: Final = 0.5
"""Seconds without a message after which a reader has received everything."""
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
"""Malformed frames: protocol, path, subprotocol, payload and opcode."""
_MALFORMED_REQUESTS: Final = (("GET", "/nowhere", b""), ("POST", "/nq", b'{"t":'), ("BREW", "/umq", b""))


async def send_malformed(target: Target, counts: TrafficCounts, number: int) -> None:
    """Send a malformed frame or HTTP request, in turn."""
    index = number % (len(_MALFORMED_FRAMES) + len(_MALFORMED_REQUESTS))
    if index >= len(_MALFORMED_FRAMES):
        method, path, body = _MALFORMED_REQUESTS[index - len(_MALFORMED_FRAMES)]
        try:
            await raw_websocket.send_http(target, method, path, body)
            counts.count("http", "malformed", "failed")
        except (ConnectionGone, TimeoutError):
            counts.count("http", "malformed", "closed")
        return
    protocol, path, subprotocol, payload, opcode = _MALFORMED_FRAMES[index]
    try:
        async with (
            raw_websocket.open_websocket(target, path, subprotocol=subprotocol) as connection,
            asyncio.timeout(_CLOSE_TIMEOUT),
        ):
            connection.send(payload, opcode)
            while True:
                await connection.receive()
    except ConnectionGone:
        counts.count(protocol, "malformed", "closed")
    except TimeoutError:
        counts.count(protocol, "malformed", "failed")  # the hub responded with an error or ignored the frame


async def connect_with_wrong_token(target: Target, counts: TrafficCounts, protocol: str) -> None:
    """Connect with an invalid token."""
    try:
        async with connect(
            target.url(protocol), token=_WRONG_CREDENTIAL, reconnect=False, timeout=_CALL_TIMEOUT
        ) as peer:
            await peer.call("hub.ping", timeout=_CALL_TIMEOUT)
    except Refused:
        counts.count(protocol, "login", "refused")
    except FivewaysError as exc:
        counts.count_error(protocol, "login", exc)
    else:
        counts.count(protocol, "login", "result")


async def repeat_request(target: Target, counts: TrafficCounts, service: str, number: int) -> None:
    """Send an NQ request three times, lose the connection, resume the session and send the request again."""
    request = json.dumps({"t": f"{service}-look_up", "r": f"again-{number}", "d": {"item": number}})
    try:
        async with asyncio.timeout(_CALL_TIMEOUT):
            async with raw_websocket.open_websocket(target, "/nq", subprotocol="nq.1") as connection:
                peer = await _read_peer_id(connection)
                for _ in range(3):
                    connection.send(request)
                await connection.receive()  # accepted, or a response
            async with raw_websocket.open_websocket(target, f"/nq?peer={peer}", subprotocol="nq.1") as connection:
                connection.send(request)
                backchannel = await _read_backchannel(connection, f"again-{number}")
                connection.send(json.dumps({"i": backchannel}))
                connection.send(request)  # a duplicate of a finished request
                connection.send('{"e":{"type":"sys","fatal":true,"note":"bye"}}')
                with suppress(ConnectionGone):
                    while True:
                        await connection.receive()
    except (ConnectionGone, ValueError) as exc:
        counts.count("nq+ws", "repeated", "lost")
        counts.notes.append(f"a repeated request failed: {exc}")
    except TimeoutError:
        counts.count("nq+ws", "repeated", "timeout")
    else:
        counts.count("nq+ws", "repeated", "result")


async def _read_peer_id(connection: RawWebSocket) -> str:
    """Return the peer id that the hub assigned."""
    for message in _messages(await connection.receive()):
        match message:
            case {"e": {"note": "peer", "args": [str(peer), *_]}}:
                return peer
    raise ValueError("the hub assigned no peer id")


async def _read_backchannel(connection: RawWebSocket, request: str) -> str:
    """Wait for the response to a request; return the backchannel for its acknowledgement."""
    while True:
        for message in _messages(await connection.receive()):
            match message:
                case {"a": str(backchannel), "i": str(request_id), "d": _} if request_id == request:
                    return backchannel
                case {"i": str(request_id), "e": {"fatal": True} as error} if request_id == request:
                    raise ValueError(f"the hub returned the error {error}")


def _messages(data: bytes) -> list[object]:
    content = json.loads(data)
    return content if isinstance(content, list) else [content]


@asynccontextmanager
async def slow_consumer(
    target: Target, counts: TrafficCounts, publish_last: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Run a subscriber that does not read; at the end it reads the events that the hub has kept.

    The number of missed events is in the next event after that, which `publish_last` publishes.
    """
    async with AsyncExitStack() as stack:
        connection: RawWebSocket | None = None
        try:
            connection = await stack.enter_async_context(
                raw_websocket.open_websocket(target, "/umq", subprotocol="umq.1", slow=True)
            )
            async with asyncio.timeout(_CALL_TIMEOUT):
                connection.send("H1.0.0\n")
                await connection.receive()
                connection.send(
                    f'M1\nhub:subscribe\n{{"topic":"{FLOOD_TOPIC}","id":"flood","envelope":true,"when_full":"skip"}}'
                )
                await connection.receive()
        except (ConnectionGone, TimeoutError) as exc:
            counts.notes.append(f"no slow consumer: {exc or 'no response'}")
            connection = None
        yield
        if connection is not None:
            await _read_events(connection, counts)
            await publish_last()
            await _read_events(connection, counts)


async def _read_events(connection: RawWebSocket, counts: TrafficCounts) -> None:
    with suppress(ConnectionGone, TimeoutError):
        while True:
            async with asyncio.timeout(_IDLE_TIMEOUT):
                message = await connection.receive()
            _, _, body = message.partition(b"\n")
            counts.events["slow reader"] += 1
            counts.missed["slow reader"] += int(json.loads(body).get("missed", 0))
