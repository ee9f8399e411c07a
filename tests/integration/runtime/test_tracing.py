"""Traces across protocols: the spans of calls through the hub, from one worker to another."""

import asyncio
import logging
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider

import fiveways
from fiveways.app import App, Context
from fiveways.client.connect import Connector
from fiveways.errors import MissingExtra
from fiveways.hub.session import public_name
from fiveways.runtime.trace_sender import BadTracing
from fiveways.settings.operations import TracingSettings
from fiveways.settings.sections import Settings
from tests.integration.runtime.otlp_collector import attributes, collecting
from tests.support.raw_peers import Place, http, hub, settings

TRACER = TracerProvider().get_tracer("test")
SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traced(url: str, sample: float = 1.0) -> Settings:
    return replace(settings(), tracing=TracingSettings(endpoint=url, sample=sample, interval=0.02))


def to(place: Place, scheme: str) -> Connector:
    return fiveways.connect(f"{scheme}://127.0.0.1:{place.port}")


def current_ids() -> tuple[int, int]:
    """Return the current trace id and span id, 0 without a span."""
    found = trace.get_current_span().get_span_context()
    return found.trace_id, found.span_id


def number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def ids(span: Span) -> tuple[int, int]:
    """Return the trace id and the span id."""
    return number(span.trace_id), number(span.span_id)


def assert_chain(*spans: Span) -> None:
    """Assert that each span is a child of the previous one, in one trace."""
    assert len({span.trace_id for span in spans}) == 1
    for parent, child in pairwise(spans):
        assert child.parent_span_id == parent.span_id


@pytest.mark.parametrize("first", ["lrpm+ws", "umq+ws", "nq+http"])
def test_chain_of_workers_is_one_trace(first: str) -> None:
    seen: dict[str, tuple[int, int]] = {}

    async def run(url: str) -> None:
        async with (
            hub(traced(url)) as place,
            to(place, "nq+ws") as middle,
            to(place, "lrpm+ws") as last,
            to(place, first) as caller,
        ):

            async def relay(text: str) -> object:
                seen["middle"] = current_ids()
                return await middle.call("last.shout", [text])

            async def shout(text: str) -> str:
                seen["last"] = current_ids()
                return text.upper()

            await middle.register("middle.relay", relay)
            await last.register("last.shout", shout)
            assert await caller.call("middle.relay", ["hello"]) == "HELLO"

    with collecting() as collector:
        asyncio.run(run(collector.url))
        outer, inner = collector.wait(2)
    assert_chain(outer, inner)
    assert outer.parent_span_id == b""
    assert seen == {"middle": ids(outer), "last": ids(inner)}
    span_attributes = attributes(outer)
    assert outer.name == span_attributes["rpc.method"] == "middle.relay"
    assert (
        span_attributes["fiveways.caller.protocol"] == {"lrpm+ws": "lrpm-json", "umq+ws": "umq", "nq+http": "nq"}[first]
    )
    assert (span_attributes["fiveways.callee.protocol"], span_attributes["fiveways.outcome"]) == ("nq", "result")
    assert attributes(inner)["fiveways.caller.peer"] == span_attributes["fiveways.callee.peer"]
    assert outer.start_time_unix_nano <= inner.start_time_unix_nano
    assert inner.end_time_unix_nano <= outer.end_time_unix_nano
    assert collector.resources[0]["service.name"] == "fiveways"


def test_protocol_without_traces_starts_a_new_trace() -> None:
    async def run(url: str) -> None:
        async with hub(traced(url)) as place, to(place, "umq+ws") as middle, to(place, "lrpm+ws") as last:

            async def relay() -> object:
                assert current_ids() == (0, 0)
                return await middle.call("last.work")

            async def work() -> int:
                return 1

            await middle.register("middle.relay", relay)
            await last.register("last.work", work)
            assert await last.call("middle.relay") == 1

    with collecting() as collector:
        asyncio.run(run(collector.url))
        outer, inner = collector.wait(2)
    assert outer.trace_id != inner.trace_id
    assert inner.parent_span_id == b""


@pytest.mark.parametrize("scheme", ["lrpm+ws", "nq+ws", "nq+http"])
def test_span_of_the_caller_is_the_parent_without_sampling(scheme: str) -> None:
    own: list[int] = []

    async def run(url: str) -> None:
        async with hub(traced(url, sample=0.0)) as place, to(place, scheme) as caller:
            await caller.register("a.b", lambda: 1)
            with TRACER.start_as_current_span("mine") as span:
                own.append(span.get_span_context().span_id)
                await caller.call("a.b")
            await caller.call("a.b")

    with collecting() as collector:
        asyncio.run(run(collector.url))
        (span,) = collector.wait(1)
    assert [number(span.parent_span_id)] == own


@pytest.mark.parametrize("scheme", ["umq+ws", "umq36+ws"])
def test_protocol_without_traces_calls_as_usual(scheme: str) -> None:
    async def run(url: str) -> None:
        async with hub(traced(url)) as place, to(place, scheme) as caller, to(place, "nq+ws") as callee:
            await callee.register("a.b", lambda: current_ids()[0])
            with TRACER.start_as_current_span("mine") as span:
                assert await caller.call("a.b") not in {0, span.get_span_context().trace_id}

    with collecting() as collector:
        asyncio.run(run(collector.url))
        (span,) = collector.wait(1)
    assert span.parent_span_id == b""


def test_blocking_client_sends_its_span() -> None:
    async def serve(url: str, ready: "asyncio.Future[int]", done: asyncio.Event) -> None:
        app = App()
        app.method("a.b")(lambda: current_ids()[0])
        async with hub(traced(url, sample=0.0), app) as place:
            ready.set_result(place.port)
            await done.wait()

    def call(port: int) -> tuple[object, int]:
        with fiveways.connect_sync(f"lrpm+ws://127.0.0.1:{port}") as peer, TRACER.start_as_current_span("mine") as span:
            return peer.call("a.b"), span.get_span_context().trace_id

    async def run(url: str) -> tuple[object, int]:
        ready, done = asyncio.get_running_loop().create_future(), asyncio.Event()
        serving = asyncio.create_task(serve(url, ready, done))
        found = await asyncio.to_thread(call, await ready)
        done.set()
        await serving
        return found

    with collecting() as collector:
        seen, mine = asyncio.run(run(collector.url))
        assert seen == mine
        collector.wait(1)


def test_all_kinds_of_methods_run_in_the_trace() -> None:
    app, seen = App(), {}

    @app.method("app.waits")
    async def waits(context: Context) -> None:
        seen["waits"] = current_ids()
        await context.call("app.thread")

    @app.method("app.thread")
    def thread() -> None:
        seen["thread"] = current_ids()

    @app.method("app.parts")
    async def parts():  # type: ignore[no-untyped-def]  # noqa: ANN202
        seen["parts"] = current_ids()
        yield 1

    async def run(url: str) -> None:
        async with hub(traced(url), app) as place, to(place, "lrpm+ws") as caller:
            await caller.call("app.waits")
            await caller.call("app.parts")

    with collecting() as collector:
        asyncio.run(run(collector.url))
        spans = collector.wait(3)
    assert_chain(*spans[:2])
    found = {attributes(span)["rpc.method"]: ids(span) for span in spans}
    assert seen == {"waits": found["app.waits"], "thread": found["app.thread"], "parts": found["app.parts"]}
    assert attributes(spans[0])["fiveways.callee.protocol"] == "app"


def test_span_of_a_worker_is_not_mixed_with_its_calls() -> None:
    seen: list[tuple[int, int]] = []

    async def run() -> None:
        async with hub() as place:
            with TRACER.start_as_current_span("setting up"):
                async with to(place, "lrpm+ws") as worker:

                    async def work() -> None:
                        seen.append(current_ids())

                    await worker.register("a.b", work)
                    async with to(place, "umq+ws") as caller:
                        await caller.call("a.b")

    asyncio.run(run())
    assert seen == [(0, 0)]


def test_invalid_trace_context_is_ignored() -> None:
    async def run(url: str) -> None:
        async with hub(traced(url, sample=0.0)) as place:
            callee, caller = await place.lrpm(), await place.lrpm()
            callee.text('[40,300,"hub.register",["a.b"],{}]')
            await callee.heard()
            for number, header in enumerate(["nonsense", SAMPLED.upper(), SAMPLED]):
                caller.text(f'[40,{300 + number},"a.b",null,{{"traceparent":"{header}"}}]')
                assert ("traceparent" in await callee.heard()) is (header == SAMPLED)

    with collecting() as collector:
        asyncio.run(run(collector.url))


def test_sample_rate_0_sends_nothing() -> None:
    async def run(url: str) -> None:
        async with hub(traced(url, sample=0.0)) as place, to(place, "lrpm+ws") as peer:
            await peer.register("a.b", lambda: 1)
            for _ in range(100):
                await peer.call("a.b")
            assert "fiveways_spans_sent_total 0" in await http(place.port, "/metrics")

    with collecting() as collector:
        asyncio.run(run(collector.url))
        assert collector.spans == []


def test_unreachable_collector_does_not_affect_calls(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hub(traced("http://me:pw@127.0.0.1:1/v1/traces?key=k")) as place, to(place, "lrpm+ws") as peer:
            await peer.register("a.b", lambda: 1)
            for _ in range(100):
                assert await peer.call("a.b") == 1
            for _ in range(500):
                if "fiveways_spans_lost_total 0" not in (page := await http(place.port, "/metrics")):
                    break
                await asyncio.sleep(0.02)
            assert "fiveways_spans_sent_total 0" in page

    asyncio.run(run())
    lines = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.getMessage() for each in lines] == ["span export failed; spans are lost until it works again"]
    assert [each.fields for each in lines] == [  # type: ignore[attr-defined]
        {"endpoint": "http://127.0.0.1:1/v1/traces", "error": "Connection refused"}
    ]


def test_error_status_of_a_collector_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hub(settings()) as other, hub(traced(f"http://127.0.0.1:{other.port}/no/such")) as place:
            async with to(place, "lrpm+ws") as peer:
                await peer.register("a.b", lambda: 1)
                await peer.call("a.b")
            for _ in range(500):
                if "span export failed" in caplog.text:
                    break
                await asyncio.sleep(0.02)
            (line,) = [each for each in caplog.records if each.getMessage().startswith("span export failed")]
            assert line.fields == {  # type: ignore[attr-defined]
                "endpoint": f"http://127.0.0.1:{other.port}/no/such",
                "error": "it responded with status 404",
            }

    asyncio.run(run())


def test_spans_contain_no_secrets() -> None:
    async def run(url: str) -> list[str]:
        async with hub(traced(url)) as place, to(place, "lrpm+ws") as peer:

            async def fails(secret: str) -> None:
                raise fiveways.Fail(f"wrong: {secret}")

            await peer.register("a.b", fails)
            with pytest.raises(fiveways.CallFailed):
                await peer.call("a.b", ["hunter2"])
            return list(place.server.exchange.participants)

    with collecting() as collector:
        (peer,) = asyncio.run(run(collector.url))
        (span,) = collector.wait(1)
    assert "hunter2" not in str(span)
    assert peer not in str(span)
    assert attributes(span)["fiveways.caller.peer"] == public_name(peer)
    assert (attributes(span)["fiveways.outcome"], span.status.code) == ("raised", 2)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)

    async def run() -> None:
        with pytest.raises(MissingExtra, match=r"^tracing.endpoint needs .* pip install 'fiveways\[tracing\]'$"):
            async with hub(traced("http://127.0.0.1:4318/v1/traces")):
                pass

    asyncio.run(run())


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://localhost/v1/traces", "http://"])
def test_endpoint_must_be_a_url(url: str) -> None:
    async def run() -> None:
        with pytest.raises(BadTracing, match=r"tracing\.endpoint must be a URL such as"):
            async with hub(traced(url)):
                pass

    asyncio.run(run())
