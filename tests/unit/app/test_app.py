"""Declarations of an `App`: accepted functions, and errors for all others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import TYPE_CHECKING, assert_type

import pytest

from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.app.events import Event
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic

if TYPE_CHECKING:
    from decimal import Decimal


def test_decorator_returns_the_function_unchanged() -> None:
    app = App()

    @app.method("math.add")
    async def add(a: float, b: float) -> float:
        return a + b

    @app.method
    def double(a: int) -> int:
        return 2 * a

    @app.on("sensors.*")
    def follow(event: Event) -> str:
        return event.topic

    @app.startup
    async def begin() -> None: ...

    assert assert_type(asyncio.run(add(1.5, 2)), float) == 3.5
    assert assert_type(double(2), int) == 4
    assert assert_type(follow(Event("sensors.a")), str) == "sensors.a"
    assert assert_type(asyncio.run(begin()), None) is None


def test_method_has_folded_name_documentation_and_kind() -> None:
    app = App()

    @app.method("Account:getBalance", share="first")
    async def balance(user: str) -> float:
        """Tell how much there is.

        In euros.
        """
        return len(user)

    @app.method(doc="Count.")
    async def count_up(to: int) -> AsyncIterator[int]:
        """Something else."""
        for number in range(to):
            yield number

    @app.method
    async def total(numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])

    @app.method
    async def doubled(numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield 2 * number

    assert [(each.name, each.doc, each.kind, each.share) for each in app.methods.values()] == [
        ("account.get_balance", "Tell how much there is.\n\nIn euros.", "unary", "first"),
        ("count_up", "Count.", "server", ""),
        ("total", "", "client", ""),
        ("doubled", "", "both", ""),
    ]
    assert app.methods["account.get_balance"].function is balance
    assert {count_up, total, doubled}


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, by: int) -> int:
        self.count += by
        return self.count

    async def read(self) -> int:
        return self.count


def logged(function: Callable[..., object]) -> Callable[..., object]:
    @wraps(function)
    def run(*args: object) -> object:
        return function(*args)

    return run


def test_bound_methods_partials_and_callables_can_be_declared() -> None:
    app, counter = App(), Counter()
    app.method("count")(counter)
    app.method("read")(counter.read)
    app.method("count_two")(partial(counter, 2))
    app.method("decorated")(logged(counter.__call__))
    assert [each.mode.name for each in app.methods.values()] == ["THREAD", "ASYNC", "THREAD", "THREAD"]
    assert app.methods["count"].doc == "Counts."


def generator() -> Iterator[int]:
    yield 1


async def async_generator(event: Event) -> AsyncIterator[int]:
    yield len(event.topic)


class Strange:
    pass


def takes_strange(a: Strange) -> None: ...
def takes_strange_list(a: list[Strange]) -> None: ...
def takes_missing(a: "Decimal") -> None: ...
def takes_two_kinds(a: list[int] | tuple[int, ...]) -> None: ...
def takes_only(a: int, /, *, b: int) -> None: ...
def plain_stream(a: AsyncIterator[int]) -> None: ...
async def stream_and_more(a: AsyncIterator[int], b: int) -> None: ...
async def stream_of_strange(a: AsyncIterator[Strange]) -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (generator, "it: a generator must be async"),
        (takes_strange, "it: parameter 'a' is or contains Strange, which no caller can send"),
        (takes_strange_list, "it: parameter 'a' is or contains Strange, which no caller can send"),
        (takes_missing, "it: its annotations cannot be evaluated: name 'Decimal' is not defined"),
        (takes_two_kinds, "it: parameter 'a' has a type that cannot be checked: "),
        (takes_only, "it: parameter 'b' is keyword-only and others are positional-only: no call can pass both"),
        (plain_stream, "it: only an async function can read a streamed request"),
        (stream_and_more, "it: parameter 'b' needs a default, because the request is streamed"),
        (stream_of_strange, "it: an element of 'a' is or contains Strange"),
        (max, "it: no signature found"),
        (5, "it: 5 is not a function"),
    ],
)
def test_function_that_cannot_serve_calls_is_refused(function: Callable[..., object], sentence: str) -> None:
    app = App()
    with pytest.raises(TypeError) as caught:
        app.method("it")(function)
    assert str(caught.value).startswith(sentence)
    assert not app.methods


def test_return_annotation_is_ignored() -> None:
    def strange() -> "Decimal":
        raise NotImplementedError

    App().method(strange)


@pytest.mark.parametrize("name", ["hub.ping", "callback.x", "a..b", "", "Account:", "a*"])
def test_invalid_method_name_is_refused(name: str) -> None:
    with pytest.raises(BadName):
        App().method(name)(generator)


def test_second_declaration_of_a_folded_name_is_refused() -> None:
    app = App()
    app.method("Account:getBalance")(takes_nothing)
    with pytest.raises(ValueError, match=r"the method 'account\.get_balance' is declared already"):
        app.method("account.get_balance")(takes_nothing)


def takes_nothing() -> None: ...


def test_callable_without_a_name_needs_one() -> None:
    with pytest.raises(TypeError, match="has no name; pass one"):
        App().method(lambda: 1)
    with pytest.raises(TypeError, match="has no name; pass one"):
        App().method(Counter())


def test_unknown_share_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="share must be one of round_robin, random, first, open, not 'all'"):
        App().method("a", share="all")


def test_on_needs_a_topic_and_a_function_of_one_argument() -> None:
    app = App()
    with pytest.raises(TypeError, match="on needs a topic"):
        app.on(takes_nothing)  # type: ignore[arg-type]  # a common mistake
    with pytest.raises(BadTopic):
        app.on("a.**")
    with pytest.raises(TypeError, match=r"on a\.b: the function must take one argument, the event"):
        app.on("a.b")(takes_nothing)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"on a\.b: an async generator cannot handle events"):
        app.on("a.b")(async_generator)
    assert not app.handlers


def test_hook_takes_only_a_context() -> None:
    app = App()

    @app.startup
    def begin(context: Context) -> None:
        assert context

    with pytest.raises(TypeError, match="shutdown: the function may take a Context, and nothing else"):
        app.shutdown(takes_strange_list_or_none)
    assert [hook.function for hook in app.startups] == [begin]


def takes_strange_list_or_none(a: int = 1) -> None: ...


def test_include_adds_methods_below_a_prefix() -> None:
    app, other = App(), App()
    other.method("get")(takes_nothing)
    other.on("a.*")(print)
    other.startup(takes_nothing)
    other.shutdown(takes_nothing)
    app.include(other, prefix="Bank:Account")
    app.include(other, prefix="bank.book.")
    assert list(app.methods) == ["bank.account.get", "bank.book.get"]
    assert [each.name for each in app.methods.values()] == list(app.methods)
    assert len(app.handlers) == len(app.startups) == len(app.shutdowns) == 2
    app.include(other)
    with pytest.raises(ValueError, match="the method 'get' is declared already"):
        app.include(other)
    with pytest.raises(BadName):
        app.include(other, prefix="hub")
    assert list(app.methods) == ["bank.account.get", "bank.book.get", "get"]
