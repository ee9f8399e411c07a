"""What the decorators accept, and what they say to the rest."""

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


def test_a_decorated_function_stays_what_it_was() -> None:
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


def test_a_method_has_a_folded_name_a_documentation_and_a_kind() -> None:
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


def test_more_than_functions_can_be_offered() -> None:
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
        (takes_strange, "it: parameter 'a' is or holds a Strange, which no caller can send"),
        (takes_strange_list, "it: parameter 'a' is or holds a Strange, which no caller can send"),
        (takes_missing, "it: its annotations cannot be read: name 'Decimal' is not defined"),
        (takes_two_kinds, "it: parameter 'a' has a type that cannot be checked: "),
        (takes_only, "it: parameter 'b' is for names only, and others for positions only"),
        (plain_stream, "it: only an async function can read a stream"),
        (stream_and_more, "it: parameter 'b' needs a default, since the call is a stream"),
        (stream_of_strange, "it: an element of 'a' is or holds a Strange"),
        (max, "it: no signature found"),
        (5, "it: 5 is no function"),
    ],
)
def test_a_function_that_could_serve_no_call(function: Callable[..., object], sentence: str) -> None:
    app = App()
    with pytest.raises(TypeError) as caught:
        app.method("it")(function)
    assert str(caught.value).startswith(sentence)
    assert not app.methods


def test_what_a_function_returns_may_be_annotated_with_anything() -> None:
    def strange() -> "Decimal":
        raise NotImplementedError

    App().method(strange)


@pytest.mark.parametrize("name", ["hub.ping", "callback.x", "a..b", "", "Account:", "a*"])
def test_a_name_that_no_method_may_have(name: str) -> None:
    with pytest.raises(BadName):
        App().method(name)(generator)


def test_a_name_can_be_taken_once_however_it_is_spelled() -> None:
    app = App()
    app.method("Account:getBalance")(takes_nothing)
    with pytest.raises(ValueError, match=r"there is a method 'account\.get_balance' already"):
        app.method("account.get_balance")(takes_nothing)


def takes_nothing() -> None: ...


def test_what_has_no_name_must_be_given_one() -> None:
    with pytest.raises(TypeError, match="has no name of its own"):
        App().method(lambda: 1)
    with pytest.raises(TypeError, match="has no name of its own"):
        App().method(Counter())


def test_share_is_one_of_a_few() -> None:
    with pytest.raises(ValueError, match="share is one of round_robin, random, first, open, not 'all'"):
        App().method("a", share="all")


def test_on_wants_a_topic_and_a_function_of_one_argument() -> None:
    app = App()
    with pytest.raises(TypeError, match="on needs a topic"):
        app.on(takes_nothing)  # type: ignore[arg-type]  # what people write
    with pytest.raises(BadTopic):
        app.on("a.**")
    with pytest.raises(TypeError, match=r"on a\.b: the function must take one argument, the event"):
        app.on("a.b")(takes_nothing)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"on a\.b: there is nobody to whom it could yield"):
        app.on("a.b")(async_generator)
    assert not app.handlers


def test_a_hook_takes_a_context_or_nothing() -> None:
    app = App()

    @app.startup
    def begin(context: Context) -> None:
        assert context

    with pytest.raises(TypeError, match="shutdown: the function may take a Context, and nothing else"):
        app.shutdown(takes_strange_list_or_none)
    assert [hook.function for hook in app.startups] == [begin]


def takes_strange_list_or_none(a: int = 1) -> None: ...


def test_an_application_includes_another_below_a_prefix() -> None:
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
    with pytest.raises(ValueError, match="there is a method 'get' already"):
        app.include(other)
    with pytest.raises(BadName):
        app.include(other, prefix="hub")
    assert list(app.methods) == ["bank.account.get", "bank.book.get", "get"]
