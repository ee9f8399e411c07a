"""Functions that `App.worker` accepts, their arguments, and errors for all others."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_type

import pytest

from fiveways.app import App, AttachmentError, Context, Job
from fiveways.app.arguments import BoundArguments
from fiveways.app.attachments import Attachments
from fiveways.app.signature import ExecutionMode
from fiveways.errors import BadValue
from fiveways.model.messages import Call, HubMessage
from fiveways.wire.payload import Value


@dataclass
class Photo:
    path: str
    width: int = 100


class Connection:
    """The connection of a job."""

    is_over = False

    def __init__(self) -> None:
        self.sent: list[HubMessage] = []

    def send(self, message: HubMessage) -> None:
        self.sent.append(message)

    def expect(self, names: object) -> Attachments:
        raise AttachmentError(f"there are no attachments {names}")


def job(data: object) -> Job:
    return Job(Connection(), Call("1", "7", Value(data), callback=True))


def arguments(function: Callable[..., object], data: object, context: Any = None) -> BoundArguments:  # noqa: ANN401  # any object
    app = App()
    app.worker("photos")(function)
    return app.workers[0].arguments.read(job(data), context)


def test_worker_keeps_the_type_of_its_function() -> None:
    app = App()

    @app.worker("photos", concurrency=3)
    def shrink(path: str) -> int:
        return len(path)

    assert assert_type(shrink("a.png"), int) == 5
    (worker,) = app.workers
    assert (worker.queue, worker.concurrency, worker.mode) == ("photos", 3, ExecutionMode.THREAD)


def test_data_is_converted_to_the_annotation_of_the_argument() -> None:
    def typed(photo: Photo) -> None: ...
    def union(number: int | None) -> None: ...
    def keyword_only(*, photo: Photo) -> None: ...
    def without(data, size=3): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    def anything(data: Any) -> None: ...  # noqa: ANN401
    def optional(photo: Photo | None = None) -> None: ...

    assert arguments(typed, {"path": "a"}) == ([Photo("a")], {})
    assert arguments(union, None) == ([None], {})
    assert arguments(keyword_only, {"path": "a", "width": 5}) == ([], {"photo": Photo("a", 5)})
    assert arguments(without, {"any": 1}) == ([{"any": 1}, 3], {})
    assert arguments(anything, [1, "a"]) == ([[1, "a"]], {})
    assert arguments(optional, {"path": "a"}) == ([Photo("a")], {})
    for function in (typed, keyword_only):
        with pytest.raises(BadValue, match="the value is not of type Photo"):
            arguments(function, {"path": 7})
    with pytest.raises(BadValue, match="Expected `str`, got `int`"):
        arguments(optional, {"path": 7})


def test_context_is_passed_at_the_position_of_its_parameter() -> None:
    def first(context: Context, data: int) -> None: ...
    def last(data: int, size: int = 2, context: Context | None = None) -> None: ...
    def by_name(data: int, *, context: Context) -> None: ...

    context = object()
    assert arguments(first, 1, context) == ([context, 1], {})
    assert arguments(last, 1, context) == ([1, 2, context], {})
    assert arguments(by_name, 1, context) == ([1], {"context": context})


def test_parameter_annotated_job_gets_the_job() -> None:
    async def work(job: Job, context: Context) -> None: ...

    (argument, _), kwargs = arguments(work, {"path": "a"})
    assert isinstance(argument, Job)
    assert argument.decode(Photo) == Photo("a")
    assert kwargs == {}


async def streaming(data: int) -> AsyncIterator[int]:
    yield data


def reading(elements: AsyncIterator[int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (streaming, "an async generator cannot handle jobs"),
        (reading, "must take one argument"),
        (lambda: None, "must take one argument"),
        (lambda a, b: (a, b), "must take one argument"),
        (lambda *args: args, "must take one argument"),
        (7, "7 is not a function"),
    ],
    ids=["generator", "stream", "no argument", "two arguments", "any arguments", "no function"],
)
def test_function_that_cannot_handle_a_job_is_refused(function: Callable[..., object], text: str) -> None:
    app = App()
    with pytest.raises(TypeError, match=f"^worker photos: .*{text}"):
        app.worker("photos")(function)
    assert app.workers == []


def test_annotation_that_no_data_can_match_is_refused() -> None:
    def work(data: Connection) -> None: ...
    def exact(data: Decimal) -> None: ...

    app = App()
    with pytest.raises(TypeError, match="'data' is or contains Connection"):
        app.worker("photos")(work)
    app.worker("photos")(exact)


def test_method_cannot_take_a_job() -> None:
    def work(job: Job) -> None: ...

    with pytest.raises(TypeError, match="is or contains Job, which no caller can send"):
        App().method("work")(work)


def test_worker_with_an_invalid_queue_or_concurrency_is_refused() -> None:
    app = App()
    with pytest.raises(TypeError, match="worker needs a queue"):
        app.worker(lambda data: data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be empty"):
        app.worker("")
    for concurrency in (0, -1):
        with pytest.raises(ValueError, match="concurrency must be at least 1"):
            app.worker("photos", concurrency=concurrency)
    for unfit in ("2", 1.5, True):
        with pytest.raises(TypeError, match="concurrency must be an integer"):
            app.worker("photos", concurrency=unfit)  # type: ignore[arg-type]


def test_include_adds_workers() -> None:
    inner, outer = App(), App()
    inner.worker("photos", concurrency=2)(lambda data: data)
    outer.include(inner, prefix="shop")
    assert [(worker.queue, worker.concurrency) for worker in outer.workers] == [("photos", 2)]
