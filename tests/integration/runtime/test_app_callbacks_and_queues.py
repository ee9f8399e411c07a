"""Callbacks and work queues of an application in the hub's process."""

import asyncio
import json

from fiveways.app import App, Context
from fiveways.app.responses import Fail
from fiveways.errors import CallTimeout, NotExecuted, Reason
from tests.support.raw_peers import hub

app = App()
seen: list[object] = []
"""Values that callbacks and jobs passed to the application; each test clears it."""


@app.method("work.run")
async def run(n: int) -> int:
    seen.append(n)
    return n


@app.method("work.token_of_method")
async def token_of_method(context: Context) -> object:
    return await context.call("hub.callback", {"id": "Work:run"})


@app.method("work.token")
async def token(context: Context) -> str:
    async def handler(value: int, context: Context) -> str:
        seen.append(value)
        return f"{context.peer.protocol} said {value}"

    return await context.callback(handler)


@app.method("work.plain_token")
def plain_token(context: Context) -> str:
    def handler(value: int) -> int:
        return value + 1

    return context.wait(context.callback(handler))


@app.method("work.failing_token")
async def failing_token(context: Context) -> str:
    async def handler() -> None:
        raise Fail("not today")

    return await context.callback(handler)


@app.method("work.no_token")
async def no_token(context: Context, argument: object) -> object:
    try:
        return await context.call("hub.callback", argument)
    except NotExecuted as exc:
        return [exc.reason is Reason.BAD_ARGUMENTS, str(exc)]


@app.method("work.no_pull")
async def no_pull(context: Context, argument: object) -> object:
    try:
        return await context.call("hub.pull", argument)
    except NotExecuted as exc:
        return [exc.reason is Reason.BAD_ARGUMENTS, str(exc)]


@app.method("work.pull_by_method")
async def pull_by_method(context: Context) -> object:
    return await context.call("hub.pull", {"queue": "jobs", "callback": "work.run"})


@app.method("work.pull")
async def pull(context: Context) -> object:
    async with context.pull("jobs") as job:
        return job.data


@app.method("work.pull_and_fail")
async def pull_and_fail(context: Context) -> object:
    job = await context.pull("jobs")
    await job.fail("not today")
    return job.data


@app.method("work.pull_in_vain")
async def pull_in_vain(context: Context) -> str:
    try:
        await context.pull("empty", timeout=0.01)
    except CallTimeout as exc:
        return str(exc)
    return "there was one"


def test_token_for_an_app_method_runs_the_method_once() -> None:
    async def check() -> None:
        seen.clear()
        async with hub(app=app) as place:
            owner, other = await place.umq(), await place.lrpm()
            owner.text("M1\nwork:token_of_method\n")
            token_text = (await owner.heard()).removeprefix("R1\n")
            other.text(f'[40,300,"callback.{token_text}",{{"n":7}},{{}}]')
            assert await other.heard() == "[41,300,7,{}]"
            other.text(f'[40,301,"callback.{token_text}",{{"n":7}},{{}}]')
            assert "hub.err.no_such_callback" in await other.heard()
        assert seen == [7]

    asyncio.run(check())


def test_token_for_a_function_of_an_app_runs_it_once_for_any_caller() -> None:
    async def check() -> None:
        seen.clear()
        async with hub(app=app) as place:
            umq, umq36 = await place.umq(), await place.umq36()
            umq.text("M1\nwork:token\n")
            token_text = (await umq.heard()).removeprefix("R1\n")
            umq36.text(f"B1:{token_text.upper()}:5")
            assert await umq36.heard() == "R1:umq36 said 5"
            umq36.text(f"B2:{token_text.upper()}:6")
            assert (await umq36.heard()).startswith("E2:2 ")
            umq.text("M2\nwork:plain_token\n")
            token_text = (await umq.heard()).removeprefix("R2\n")
            umq.text(f"C3\n{token_text}\n41")
            assert await umq.heard() == "R3\n42"
            umq.text("M4\nwork:failing_token\n")
            token_text = (await umq.heard()).removeprefix("R4\n")
            umq.text(f"C5\n{token_text}\n")
            assert await umq.heard() == "E5\nnot today"
        assert seen == [5]

    asyncio.run(check())


def test_callback_and_pull_of_an_app_without_a_receiver_are_refused() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            for number, (method, argument) in enumerate(
                [
                    ("no_token", {"argument": {"id": "nobody"}}),
                    ("no_token", {"argument": "nobody"}),
                    ("no_pull", {"argument": {"queue": "jobs", "callback": "nobody"}}),
                    ("no_pull", {"argument": ["jobs", "nobody"]}),
                ]
            ):
                peer.text(f"M{number}\nwork:{method}\n{json.dumps(argument)}")
                answer = json.loads((await peer.heard()).removeprefix(f"R{number}\n"))
                assert answer[0], answer
                assert "no callback 'nobody'" in answer[1]

    asyncio.run(check())


def test_app_pulls_a_job_by_context_manager_and_by_method() -> None:
    async def check() -> None:
        seen.clear()
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text('M1\nhub:push\n{"queue":"jobs","data":{"n":1}}')
            assert await peer.heard() == 'R1\n{"waiting":1}'
            peer.text("M2\nwork:pull\n")
            assert await peer.heard() == 'R2\n{"n":1}'
            peer.text("M3\nwork:pull_by_method\n")
            assert await peer.heard() == "R3\nnull"
            peer.text('M4\nhub:push\n{"queue":"jobs","data":{"n":2}}')
            assert await peer.heard() == 'R4\n{"waiting":0}'
            peer.text("M5\nwork:pull_in_vain\n")
            assert "no job arrived in 'empty'" in await peer.heard()
            # A pull that the application no longer waits for is withdrawn from the hub.
            peer.text("M6\nhub:queues\n")
            assert await peer.heard() == "R6\n{}"
        assert seen == [2]

    asyncio.run(check())


def test_job_failed_by_an_app_goes_to_the_next_worker() -> None:
    async def check() -> None:
        async with hub(app=app) as place:
            peer = await place.umq()
            peer.text('M1\nhub:push\n{"queue":"jobs","data":"once"}')
            await peer.heard()
            peer.text("M2\nwork:pull_and_fail\n")
            assert await peer.heard() == "R2\nonce"
            peer.text("M3\nwork:pull\n")
            assert await peer.heard() == "R3\nonce"
            peer.text("M4\nhub:queues\n")
            assert await peer.heard() == "R4\n{}"

    asyncio.run(check())
