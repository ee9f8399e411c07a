"""The table of failures cell by cell: the frame that a hub writes, and the reason that a client reads."""

import json
import re
from collections.abc import Callable
from typing import Any

import cbor2
import pytest

from fiveways.errors import Execution, LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.protocols import registry
from fiveways.protocols.base import Role
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value
from tests.conformance.protocols.conversation_pair import Pair
from tests.support.paths import VECTOR_FOLDER

TABLE = json.loads((VECTOR_FOLDER / "failures.json").read_text(encoding="utf-8"))


def umq(packet: Packet) -> str:
    result = re.match(r"([E!])[0-9A-Z]+[:\n]([0-9]+) ", packet.payload.decode())
    assert result
    return f"{result[1]} {result[2]}"


def mqtt(packet: Packet) -> int:
    return rpc_pb2.Response.FromString(packet.payload).error_data.code


def nq(packet: Packet) -> str:
    error = json.loads(packet.payload)["e"]
    assert error["fatal"] is True
    return f"{error['type']} {error['err']}" if error["type"] == "local" else str(error["type"])


# The content of a cell, parsed by third-party tools if possible.
CELLS: dict[str, tuple[str, Callable[[Packet], object]]] = {
    "umq36": ("umq36", umq),
    "umq": ("umq", umq),
    "lrpm-json": ("lrpm", lambda packet: json.loads(packet.payload)[3]),
    "lrpm-cbor": ("lrpm", lambda packet: cbor2.loads(packet.payload)[3]),
    "mqtt-rpc": ("mqtt", mqtt),
    "nq": ("nq", nq),
}


def test_table_has_all_reasons_and_protocols() -> None:
    assert [Reason[row["reason"]] for row in TABLE] == list(Reason)
    assert set(CELLS) == set(registry.PROTOCOLS)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["reason"])
def test_execution_of_each_reason(row: dict[str, Any]) -> None:
    assert Reason[row["reason"]].execution is Execution(row["ran"])


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["reason"])
@pytest.mark.parametrize("name", CELLS)
def test_cell_of_the_table(name: str, row: dict[str, Any]) -> None:
    pair, reason = Pair(registry.load(name)), Reason[row["reason"]]
    (call,) = pair.send(Role.CLIENT, hub.Call("h1", "math.add", Value(b"") if name == "mqtt-rpc" else Value(1)))
    assert isinstance(call, hub.Call)
    failure = hub.Failure(call.id, reason)
    column, cell = CELLS[name]
    if row[column] is None:
        with pytest.raises(LocalProtocolError):
            pair.ends[Role.SERVER].send(failure, 0.0)
        return
    pair.ends[Role.SERVER].send(failure, 0.0)
    (packet,) = pair.ends[Role.SERVER].take_packets()
    assert cell(packet) == row[column]
    (received,) = pair.ends[Role.CLIENT].receive(packet, 0.0)
    assert isinstance(received, hub.Failure)
    assert received.reason is reason
