"""The four kinds of methods and their four outcomes, over each broker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fiveways.client.mqtt import Stub
from fiveways.errors import CallFailed, CallTimeout
from tests.support.broker_processes import RunningBroker
from tests.support.rpc_service import BAD, HANG, Pair, message, pair
from tests.support.running import async_test
from tests.support.waiting import until

Call = Callable[[Stub, str, float | None], Awaitable[list[object]]]
NUMBERS = {"success": 3, "error": BAD, "timeout": HANG, "cancel": HANG}
WORDS = {"success": "bob", "error": "fail", "timeout": "hang", "cancel": "hang"}


async def unary(stub: Stub, outcome: str, timeout: float | None) -> list[object]:  # noqa: ASYNC109  the timeout of the call
    reply = await stub.SayHello(message("HelloRequest", name=WORDS[outcome]), timeout=timeout)
    return [reply.text]


async def server(stub: Stub, outcome: str, timeout: float | None) -> list[object]:  # noqa: ASYNC109
    request = message("CountRequest", up_to=NUMBERS[outcome])
    return [reply.number async for reply in stub.Count(request, timeout=timeout)]


async def client(stub: Stub, outcome: str, timeout: float | None) -> list[object]:  # noqa: ASYNC109
    requests = [message("SumRequest", number=number) for number in (1, 2, NUMBERS[outcome])]
    return [(await stub.Sum(requests, timeout=timeout)).total]


async def both(stub: Stub, outcome: str, timeout: float | None) -> list[object]:  # noqa: ASYNC109
    async def lines() -> AsyncIterator[Any]:
        for word in ("one", WORDS[outcome]):
            await asyncio.sleep(0)
            yield message("ChatLine", text=word)

    return [line.text async for line in stub.Chat(lines(), timeout=timeout)]


KINDS: dict[str, Call] = {"unary": unary, "server": server, "client": client, "both": both}
VALUES = {
    "unary": ["hello bob"],
    "server": [1, 2, 3],
    "client": [6],
    "both": ["you said one", "you said bob"],
}


async def success(it: Pair, call: Call, kind: str) -> None:
    assert await call(it.stub(), "success", None) == VALUES[kind]


async def error(it: Pair, call: Call, kind: str) -> None:
    with pytest.raises(CallFailed, match="no such") as caught:
        await call(it.stub(), "error", None)
    assert caught.value.code == 422
    assert caught.value.name == {"unary": "no_name", "both": "no_line"}.get(kind, "no_number")
    assert (caught.value.retry_after, caught.value.data) == (
        (0.25, {"name": "fail"}) if kind == "unary" else (None, None)
    )


async def timeout(it: Pair, call: Call, _kind: str) -> None:
    """The service gets the caller's timeout, and its method ends with it."""
    with pytest.raises(CallTimeout):
        await call(it.stub(), "timeout", 0.4)
    await until(lambda: it.service.ended)
    assert it.service.ended == ["cancelled"]


async def cancel(it: Pair, call: Call, _kind: str) -> None:
    """The service is not told; its response is dropped, and counted."""
    task = asyncio.ensure_future(call(it.stub(), "cancel", None))
    await it.service.hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    it.service.go_on.set()
    await until(lambda: it.service.ended)
    assert it.service.ended[0] == "went on"
    await until(lambda: it.caller.dropped)
    assert it.caller.strays == 0


OUTCOMES = {"success": success, "error": error, "timeout": timeout, "cancel": cancel}


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("kind", KINDS)
@async_test
async def test_each_kind_of_method_has_each_outcome(broker: RunningBroker, kind: str, outcome: str) -> None:
    async with pair(broker) as it:
        await OUTCOMES[outcome](it, KINDS[kind], kind)
        assert it.service.runs == 1
        # The connection and the service still work.
        assert await unary(it.stub(), "success", None) == VALUES["unary"]
