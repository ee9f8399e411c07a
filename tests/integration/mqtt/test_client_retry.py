"""The retry policy of MQTT calls."""

from types import SimpleNamespace

import pytest

import fiveways
from fiveways.client.mqtt import Retry
from fiveways.client.mqtt.retry import NotSent
from fiveways.client.mqtt.stub import RetryAttempts
from fiveways.errors import CallError, CallFailed, CallLost, CallTimeout, NotExecuted, Reason
from tests.support.broker_processes import RunningBroker
from tests.support.rpc_service import message, pair
from tests.support.running import async_test

BUSY, GONE, BAD = Reason.OVERLOADED, Reason.UNAVAILABLE, Reason.BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("error", "made", "wait"),
    [
        (CallFailed("x", retry_after=0.5), 1, 0.5),
        (CallFailed("x", retry_after=0.5), 2, 0.5),
        (CallFailed("x", retry_after=0.5), 3, None),  # three attempts are enough
        (CallFailed("x", retry_after=30.0), 1, 30.0),
        (CallFailed("x", retry_after=30.1), 1, None),  # above the maximum delay
        (CallFailed("x", retry_after=0.0), 1, None),  # retrying is forbidden
        (CallFailed("x"), 1, None),  # retrying is forbidden
        (NotExecuted(BUSY, retry_after=2.0), 1, 2.0),
        (NotExecuted(GONE), 1, None),  # a callee answered, and did not allow a retry
        (NotSent(GONE), 1, 0.1),
        (NotSent(GONE), 2, 0.2),
        (NotSent(BAD), 1, None),  # an invalid request stays invalid
        (CallTimeout("x", retry_after=0.5), 1, None),  # it may have run
        (CallLost("x"), 1, None),
    ],
)
def test_policy_decides_by_error_and_attempt(error: CallError, made: int, wait: float | None) -> None:
    assert Retry().delay(error, made) == wait


class Busy:
    """Fails for a number of calls."""

    def __init__(self, failures: int, retry_after: float | None) -> None:
        self.failures = failures
        self.retry_after = retry_after
        self.runs = 0

    def _try(self) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise fiveways.Fail("not now", "busy", code=503, retry_after=self.retry_after)

    async def say_hello(self, _request: object) -> object:
        self._try()
        return message("HelloReply", text="at last")

    async def count(self, request: object) -> object:
        self._try()
        yield message("CountReply", number=self.runs)
        if getattr(request, "up_to", 0):
            raise fiveways.Fail("in the middle", code=503, retry_after=0.01)


@pytest.mark.parametrize(
    ("failures", "retry_after", "runs"), [(0, 0.01, 1), (2, 0.01, 3), (3, 0.01, 3), (1, None, 1), (1, 60.0, 1)]
)
@async_test
async def test_call_is_retried_if_the_error_allows_it(
    broker: RunningBroker, failures: int, retry_after: float | None, runs: int
) -> None:
    async with pair(broker, service=Busy(failures, retry_after)) as it:
        stub = it.stub(retry=Retry(attempts=3))
        if runs > failures:
            assert (await stub.SayHello(message("HelloRequest"))).text == "at last"
        else:
            with pytest.raises(CallFailed, match="not now") as caught:
                await stub.SayHello(message("HelloRequest"))
            assert caught.value.retry_after == retry_after
        assert it.service.runs == runs


@async_test
async def test_all_attempts_share_one_timeout(broker: RunningBroker) -> None:
    async with pair(broker, service=Busy(100, 0.15)) as it:
        # On a busy machine, the last attempt may have too little time left for its response.
        with pytest.raises(CallError, match=r"not now|within 0\.5 s"):
            await it.stub(timeout=0.5, retry=Retry(attempts=100)).SayHello(message("HelloRequest"))
        assert it.service.runs <= 4


@async_test
async def test_timeout_of_a_later_attempt_names_the_total_time() -> None:
    session = SimpleNamespace(settings=SimpleNamespace(timeout=60.0))
    attempts = RetryAttempts(session, "/greeter/SayHello", None, Retry())  # type: ignore[arg-type]
    await attempts.wait_after(CallFailed("not now", retry_after=0.001))
    attempts._deadline = 0.0
    with pytest.raises(CallTimeout, match=r"^/greeter/SayHello did not answer within 60 s, in 2 attempts$"):
        await attempts.wait_after(CallTimeout("/greeter/SayHello did not answer within 0.004 s"))


@async_test
async def test_streamed_response_is_retried_only_before_its_first_part(broker: RunningBroker) -> None:
    async with pair(broker, service=Busy(1, 0.01)) as it:
        stub = it.stub(retry=Retry())
        assert [part.number async for part in stub.Count(message("CountRequest"))] == [2]
        parts = stub.Count(message("CountRequest", up_to=1))
        assert (await anext(parts)).number == 3
        with pytest.raises(CallFailed, match="in the middle"):
            await anext(parts)
        assert it.service.runs == 3
