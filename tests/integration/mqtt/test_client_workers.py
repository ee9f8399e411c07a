"""Calls of async functions share tasks without affecting each other."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from fiveways.errors import CallFailed, CallTimeout
from tests.support.broker_processes import RunningBroker
from tests.support.rpc_service import message, pair
from tests.support.running import async_test
from tests.support.waiting import until

MARK: ContextVar[str] = ContextVar("MARK", default="clean")


class Shared:
    """A function with a behaviour that its caller selects."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.marks: list[str] = []
        self.cancelled: list[str] = []
        self.go = asyncio.Event()

    async def SayHello(self, request: Any) -> Any:  # noqa: ANN401, N802  the name in the schema
        name = request.name
        task = asyncio.current_task()
        assert task is not None
        self.tasks[name] = task
        self.marks.append(MARK.get())
        match name.partition(" ")[0]:
            case "mark":
                MARK.set(name)
            case "wait":
                await self.waited(name)
            case "raise":
                raise RuntimeError(name)
            case "leave":
                raise asyncio.CancelledError
            case "cancel":
                task.cancel()
            case "exit":
                raise SystemExit(name)
        return message("HelloReply", text=name)

    async def waited(self, name: str) -> None:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise


def hello(name: str) -> Any:  # noqa: ANN401  the classes are generated
    return message("HelloRequest", name=name)


@async_test
async def test_calls_without_waits_share_a_few_tasks(broker: RunningBroker) -> None:
    async with pair(broker, service=Shared()) as it:
        names = [f"quick {number}" for number in range(40)]
        replies = await asyncio.gather(*(it.stub().SayHello(hello(name)) for name in names))
        assert [reply.text for reply in replies] == names
        assert len(set(it.service.tasks.values())) < len(names)


@async_test
async def test_waiting_call_does_not_delay_others(broker: RunningBroker) -> None:
    async with pair(broker, service=Shared()) as it:
        stub = it.stub()
        waits = [asyncio.create_task(stub.SayHello(hello(f"wait {number}"))) for number in range(20)]
        replies = await asyncio.gather(*(stub.SayHello(hello(f"quick {number}")) for number in range(20)))
        assert len(replies) == 20
        await until(lambda: len(it.service.tasks) == 40)
        it.service.go.set()
        assert [reply.text for reply in await asyncio.gather(*waits)] == [f"wait {number}" for number in range(20)]


@async_test
async def test_timeout_cancels_only_its_own_call(broker: RunningBroker) -> None:
    async with pair(broker, service=Shared()) as it:
        stub = it.stub()
        asked = [stub.SayHello(hello(f"wait {number}"), timeout=60.0 if number else 2.0) for number in range(5)]
        calls = [asyncio.create_task(each) for each in [*asked, stub.SayHello(hello("quick"))]]
        with pytest.raises(CallTimeout):
            await calls[0]
        await until(lambda: it.service.cancelled)
        it.service.go.set()
        replies = await asyncio.gather(*calls[1:])
        assert [reply.text for reply in replies] == ["wait 1", "wait 2", "wait 3", "wait 4", "quick"]
        assert it.service.cancelled == ["wait 0"]
        assert (await stub.SayHello(hello("quick again"))).text == "quick again"


@async_test
async def test_task_state_of_a_function_is_invisible_to_others(broker: RunningBroker) -> None:
    async with pair(broker, service=Shared()) as it:
        stub, odd = it.stub(), ("mark 1", "cancel", "mark 2", "raise", "leave", "exit", "mark 3")
        names = [each for name in odd for each in (name, f"quick after {name}")]
        outcomes = await asyncio.gather(*(stub.SayHello(hello(name)) for name in names), return_exceptions=True)
        failed = {name for name, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, CallFailed)}
        assert failed == {"raise", "leave", "exit"}
        assert [outcome.text for outcome in outcomes if not isinstance(outcome, BaseException)] == [
            name for name in names if name not in failed
        ]
        assert set(it.service.marks) == {"clean"}
        assert len(it.service.marks) == len(names)


@async_test
async def test_call_cancelled_in_the_queue_is_not_run(broker: RunningBroker) -> None:
    async with pair(broker, service=Shared()) as it:
        it.callee._services._workers._is_worker_starting = True  # a worker that never runs: the call stays queued
        with pytest.raises(CallTimeout):
            await it.stub().SayHello(hello("late"), timeout=0.1)
        await until(lambda: not it.callee._services._calls)
        it.callee._services._workers._is_worker_starting = False
        assert (await it.stub().SayHello(hello("quick"))).text == "quick"
        assert list(it.service.tasks) == ["quick"]
