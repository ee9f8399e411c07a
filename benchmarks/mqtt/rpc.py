"""Calls through a typed stub to a service in another process."""

import asyncio
from time import perf_counter
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.wrappers_pb2 import StringValue

from fiveways.client.mqtt.peer import connect_mqtt
from fiveways.schemas import Service

_PACKAGE: Final = "benchmark"


def service() -> Service:
    """Return a service with one method, Echo, that takes and returns a text."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3", dependency=["google/protobuf/wrappers.proto"]
    )
    method = file.service.add(name="Bench").method.add(name="Echo")
    method.input_type = method.output_type = ".google.protobuf.StringValue"
    pool = descriptor_pool.Default()
    pool.Add(file)
    return Service.of(pool.FindServiceByName(f"{_PACKAGE}.Bench"))


class Bench:
    """Implementation of the service."""

    async def Echo(self, request: StringValue) -> StringValue:  # noqa: N802  as in the schema
        """Return the request."""
        return request


async def serve(url: str) -> None:
    """Serve until this process is terminated."""
    async with connect_mqtt(url) as peer, peer.serve(service(), Bench()):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def measure(url: str, in_flight: int, seconds: float, size: int) -> float:
    """Return the number of calls per second."""
    request = StringValue(value="x" * (size - _overhead()))
    answered = 0

    async def call_repeatedly() -> None:
        nonlocal answered
        while perf_counter() < stop_at:
            reply = await stub.Echo(request)
            if reply != request:
                raise AssertionError(f"unexpected reply {reply}")
            answered += 1

    async with connect_mqtt(url) as peer:
        stub = peer.stub(service())
        await stub.Echo(request)
        start = perf_counter()
        stop_at = start + seconds
        await asyncio.gather(*(call_repeatedly() for _ in range(in_flight)))
        return answered / (perf_counter() - start)


def _overhead() -> int:
    """Return the bytes of a Request beside the text, so messages have the size of those of the bare echo."""
    return 28
