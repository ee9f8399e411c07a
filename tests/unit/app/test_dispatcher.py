"""Dispatching of calls: one response for each, also if the method fails."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass

import pytest

from fiveways.app.app import App
from fiveways.app.responses import Fail, Reply, to_failure
from fiveways.errors import LocalProtocolError, NotExecuted, Reason, Unrepresentable
from fiveways.model.messages import Attachment, Failure, HubMessage, Register, Result, Welcome
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Text, Value
from tests.support.running import async_test
from tests.unit.app.dispatcher_harness import Stage, failure_of, make_call, value_of


@dataclass
class Balance:
    user: str
    amount: float


@async_test
async def test_async_threaded_and_typed_methods_send_results() -> None:
    app = App()

    @app.method("math.add")
    async def add(a: float, b: float) -> float:
        return a + b

    @app.method("math.double")
    def double(a: int) -> int:
        return 2 * a

    @app.method
    async def balance(user: str = "nobody") -> Balance:
        await asyncio.sleep(0)
        return Balance(user, 1.5)

    stage = Stage(app)
    assert await stage.call("math.add", "[2,3]") == Result("1", Value(5.0))
    assert value_of(await stage.call("math.double", "4")) == 8
    assert value_of(await stage.call("balance", '{"user":"ann"}')) == {"user": "ann", "amount": 1.5}
    assert value_of(await stage.call("balance", Text("ann"))) == {"user": "ann", "amount": 1.5}
    assert stage.dispatcher.open_calls() == 0
    await stage.dispatcher.close()


@async_test
async def test_methods_are_registered_with_kind_share_and_documentation() -> None:
    app = App()

    @app.method("Account:getBalance", share="random")
    async def balance() -> None:
        """How much?"""

    offers = Stage(app).dispatcher.registrations()
    name, spelling = "account.get_balance", "Account:getBalance"
    assert offers == [Register(f"register {name}", name, spelling, doc="How much?", share="random")]


@async_test
async def test_call_that_cannot_run_is_refused() -> None:
    app = App()

    @app.method
    async def add(a: float, b: float) -> float:
        return a + b

    stage = Stage(app)
    assert failure_of(await stage.call("sub", "[1,2]")) == (Reason.NO_SUCH_METHOD, "there is no method 'sub'")
    assert failure_of(await stage.call("add", '["1",2]')) == (
        Reason.BAD_ARGUMENTS,
        "argument 'a': expected float, got str",
    )
    reason, _ = failure_of(await stage.call("sub", "[1,2]", callback=True))
    assert reason is Reason.NO_SUCH_CALLBACK


@async_test
async def test_callback_with_the_name_of_a_method_runs_the_method() -> None:
    app = App()

    @app.method("math.add_all")
    async def add_all(a: float, b: float) -> float:
        return a + b

    stage = Stage(app)
    assert value_of(await stage.call("Math:addAll", "[1,2]", callback=True)) == 3
    await stage.dispatcher.close()
    assert failure_of(await stage.call("Math:addAll", "[1,2]", callback=True))[0] is Reason.UNAVAILABLE


@async_test
async def test_one_shot_callback_is_served_once_within_the_limit() -> None:
    stage = Stage(App(), limits=Limits(max_pending=1))

    async def then(value: int) -> int:
        return value + 1

    name = stage.dispatcher.callbacks.add_function(then)
    with pytest.raises(NotExecuted, match="1 callbacks are open"):
        stage.dispatcher.callbacks.add_function(then)
    assert value_of(await stage.call(name, "1", callback=True)) == 2
    assert failure_of(await stage.call(name, "1", callback=True))[0] is Reason.NO_SUCH_CALLBACK
    await stage.dispatcher.close()


ERRORS: list[tuple[BaseException, str]] = [
    (ValueError("no such user"), "ValueError: no such user"),
    (KeyError("user"), "KeyError: 'user'"),
    (RuntimeError(), "RuntimeError"),
    (NotExecuted(Reason.OVERLOADED, "later"), "NotExecuted: overloaded: later"),
    (asyncio.CancelledError(), "CancelledError"),
    (SystemExit(3), "SystemExit: 3"),
    (ValueError("x" * 5000), "ValueError: " + "x" * 988 + "..."),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[str(number) for number in range(len(ERRORS))])
@async_test
async def test_exception_of_a_method_fails_only_its_call(
    error: BaseException, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.method
    async def bad() -> None:
        raise error

    @app.method
    def bad_plain() -> None:
        raise error

    @app.method
    async def good() -> int:
        return 1

    stage = Stage(app)
    assert failure_of(await stage.call("bad")) == (Reason.RAISED, text)
    assert failure_of(await stage.call("bad_plain")) == (Reason.RAISED, text)
    assert value_of(await stage.call("good")) == 1
    await stage.dispatcher.close()
    logged = [record.getMessage().partition(" (")[0] for record in caplog.records]
    assert logged == ["bad failed", "bad_plain failed"]
    assert all(record.exc_info is not None for record in caplog.records)


REFERENCE = re.compile(r"the method failed \(reference ([0-9a-f]{12})\)")


class Sold(Fail):
    pass


@async_test
async def test_exception_text_is_only_logged_unless_show_errors_is_set(caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    hidden = "SELECT * FROM users"

    @app.method
    async def bad() -> None:
        raise ValueError(hidden)

    @app.method
    def bad_plain() -> None:
        raise LookupError(hidden)

    @app.method
    async def bad_stream() -> AsyncIterator[int]:
        yield 1
        raise OSError(hidden)

    @app.method
    async def unsendable() -> object:
        return Sold

    @app.method
    async def own() -> None:
        raise Sold("none are left")

    assert not app.show_errors
    stage = Stage(app, show_errors=False)
    references = []
    for name, kind in {"bad": ValueError, "bad_plain": LookupError, "bad_stream": OSError}.items():
        caplog.clear()
        reason, text = failure_of((await stage.call_all(name))[-1])
        match = REFERENCE.fullmatch(text)
        assert (reason, match is not None) == (Reason.RAISED, True), text
        (record,) = caplog.records
        references += [match and match[1]]
        assert record.getMessage() == f"{name} failed (reference {references[-1]})"
        assert record.fields == {"method": name, "reference": references[-1]}  # type: ignore[attr-defined]
        assert record.exc_info is not None
        assert record.exc_info[0] is kind
    assert len(set(references)) == len(references)
    assert failure_of(await stage.call("own")) == (Reason.RAISED, "none are left")
    _, text = failure_of(await stage.call("unsendable"))
    assert re.fullmatch(r"the method ran, but its result cannot be sent \(reference [0-9a-f]{12}\)", text)
    assert failure_of(await stage.call("own", "[1]"))[0] is Reason.BAD_ARGUMENTS
    app.show_errors = True
    assert failure_of(await stage.call("bad")) == (Reason.RAISED, f"ValueError: {hidden}")


def test_show_errors_is_off_by_default() -> None:
    assert App(show_errors=True).show_errors


def test_unpaired_surrogate_in_an_error_text_is_replaced() -> None:
    # Not through a method, which would log the traceback: pytest-xdist workers cannot transfer such a log.
    assert to_failure("1", ValueError("\ud800x")) == Failure("1", Reason.RAISED, "ValueError: ?x")


@async_test
async def test_exception_whose_str_fails_is_reported_by_class() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    app = App()

    @app.method
    async def bad() -> None:
        raise Mute

    assert failure_of(await Stage(app).call("bad")) == (Reason.RAISED, "Mute: (without a text: ValueError)")


@async_test
async def test_failing_log_handler_does_not_lose_the_response() -> None:
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError(record.getMessage())

    app = App()

    @app.method
    async def bad() -> None:
        raise KeyError("k")

    full, log = Full(), logging.getLogger("fiveways.app")
    stage = Stage(app)
    log.addHandler(full)
    try:
        responses = [await stage.call("bad"), await stage.call("bad")]
    finally:
        log.removeHandler(full)
    assert {failure_of(message) for message in responses} == {(Reason.RAISED, "KeyError: 'k'")}


@async_test
async def test_fail_is_sent_with_all_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.method
    async def pay() -> None:
        raise Fail("no funds", "app.err.no_funds", Balance("ann", 0), retry_after=2.5, code=402)

    @app.method
    def bare() -> None:
        raise Fail("no\ud800")

    @app.method
    async def odd() -> None:
        raise Fail("no", data=object())

    stage = Stage(app)
    data = Value({"user": "ann", "amount": 0})
    assert await stage.call("pay") == Failure("1", Reason.RAISED, "no funds", data, 2.5, "app.err.no_funds", 402)
    assert await stage.call("bare") == Failure("1", Reason.RAISED, "no?")
    text = "no (its data cannot be sent: a object cannot be sent: Encoding objects of type object is unsupported)"
    assert await stage.call("odd") == Failure("1", Reason.RAISED, text)
    assert not caplog.records
    await stage.dispatcher.close()


@async_test
async def test_result_of_an_unsupported_type_fails_the_call() -> None:
    app = App()

    @app.method
    async def strange() -> object:
        return [object()]

    @app.method
    def strange_plain() -> object:
        return object()

    @app.method
    async def attached() -> object:
        return Reply(1, ["no bytes"])

    stage = Stage(app)
    because = "cannot be sent: Encoding objects of type object is unsupported"
    assert failure_of(await stage.call("strange")) == (Reason.RAISED, f"the method ran, but a list {because}")
    assert failure_of(await stage.call("strange_plain")) == (Reason.RAISED, f"the method ran, but a object {because}")
    sentence = "the method ran, but an attachment must be bytes, not str"
    assert failure_of(await stage.call("attached")) == (Reason.RAISED, sentence)
    await stage.dispatcher.close()


@async_test
async def test_reply_sends_attachments_after_the_result() -> None:
    app = App()

    @app.method
    def photo() -> Reply:
        return Reply({"n": 2}, [b"one", memoryview(b"two")])

    stage = Stage(app)
    result, *attached = await stage.call_all("photo")
    assert result == Result("1", Json(b'{"n":2}'), ("reply1", "reply2"))
    await stage.until(lambda: len(stage.sent) == 3)
    assert stage.sent[1:] == [Attachment("reply1", b"one"), Attachment("reply2", b"two")]
    (result, *_) = await stage.call_all("photo")
    assert isinstance(result, Result)
    assert result.attachments == ("reply3", "reply4")
    await stage.dispatcher.close()
    assert len(attached) in {0, 2}


class Narrow(Stage):
    """A stage for a protocol that cannot encode every value."""

    def _send(self, message: HubMessage) -> None:
        match message:
            case Result(body=Value(native="unwritable")) | Failure(text="unwritable"):
                raise Unrepresentable("no room for it")
            case Attachment(data=b"unwritable"):
                raise LocalProtocolError("too large")
            case Result(body=Value(native="broken")):
                raise ZeroDivisionError
        super()._send(message)


@async_test
async def test_result_that_cannot_be_encoded_becomes_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.method
    async def give(text: str) -> str:
        return text

    @app.method
    async def fail(text: str) -> None:
        raise Fail(text)

    @app.method
    async def attach() -> Reply:
        return Reply("two", [b"unwritable", b"good"])

    stage = Narrow(app)
    sentence = "the method ran, but its result cannot be encoded: no room for it"
    assert failure_of(await stage.call("give", '"unwritable"')) == (Reason.RAISED, sentence)
    stage.receive(make_call("fail", '"unwritable"'), make_call("give", '"broken"', id="2"))
    assert value_of(await stage.call("give", '"good"', id="3")) == "good"
    stage.sent.clear()
    await stage.call_all("attach", id="4")
    assert stage.sent == [
        Result("4", Value("two"), ("reply1", "reply2")),
        Attachment("reply1", error="too large"),
        Attachment("reply2", b"good"),
    ]
    assert stage.dispatcher.open_calls() == 0
    assert "the response of a method was lost method=give" in caplog.text


@async_test
async def test_unknown_messages_are_ignored_and_refusals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(App())
    stage.receive(Welcome(), Result("register a"), Failure("register a.b", Reason.DENIED, "not you"))
    stage.receive(Failure("7", Reason.DENIED), Failure("subscribe x.*", Reason.DENIED))
    assert stage.sent == []
    assert [record.getMessage() for record in caplog.records] == [
        "the hub refused a request request=register a.b error=not you",
        "the hub refused a request request=subscribe x.* error=permission denied",
    ]


@async_test
async def test_exception_during_conversion_fails_only_its_call(caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Odd:
        x: int

        def __post_init__(self) -> None:
            raise ZeroDivisionError

    app = App()

    @app.method
    async def take(odd: Odd) -> None: ...

    stage = Stage(app)
    reason, text = failure_of(await stage.call("take", '[{"x":1}]'))
    assert (reason, text) == (Reason.RAISED, "ZeroDivisionError")
    assert "take failed" in caplog.text
    assert stage.dispatcher.open_calls() == 0


def test_arguments_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.method
    async def login(password: int) -> None: ...

    async def serve() -> HubMessage:
        return await Stage(app).call("login", Json(b'"secret"'))

    with caplog.at_level(logging.DEBUG):
        assert failure_of(asyncio.run(serve())) == (
            Reason.BAD_ARGUMENTS,
            "argument 'password': expected int, got str",
        )
    assert "secret" not in caplog.text


@async_test
async def test_context_variables_of_a_method_are_not_visible_to_others() -> None:
    app = App()
    seen: ContextVar[str] = ContextVar("seen", default="nothing")

    @app.method
    async def leave(name: str) -> str:
        before = seen.get()
        seen.set(name)
        return before

    stage = Stage(app)
    for number in range(5):
        stage.dispatcher.handle(make_call("leave", f'["{number}"]', id=str(number)))
    assert [value_of(answer) for answer in await stage.responses(5)] == ["nothing"] * 5


@async_test
async def test_waiting_method_does_not_delay_others() -> None:
    app = App()
    gate = asyncio.Event()

    @app.method
    async def wait(name: str) -> str:
        if name == "open":
            gate.set()
        await gate.wait()
        return name

    stage = Stage(app)
    for name in ("a", "b", "open"):
        stage.dispatcher.handle(make_call("wait", f'["{name}"]', id=name))
    assert sorted(str(value_of(answer)) for answer in await stage.responses(3)) == ["a", "b", "open"]
