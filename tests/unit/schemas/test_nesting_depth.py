"""Nesting limits: each body is parsed or refused, and each encoded message can be parsed by others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fiveways.errors import Malformed, Unrepresentable
from fiveways.schemas import load_services
from fiveways.schemas.codec import MessageCodec
from fiveways.wire.payload import Json, Value
from tests.support import compiled_schema

pb: Any = compiled_schema.greeter().module
NODE = MessageCodec(pb.Node, is_request=True)
DEPTHS = [1, 10, *range(25, 60), *range(90, 135), 200, 2000, 20_000]


def _nested(wrap: Callable[[object], object], depth: int, inner: object) -> object:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


SHAPES: dict[str, Callable[[int], object]] = {
    "message": lambda depth: _nested(lambda inner: {"next": inner}, depth, {}),
    "repeated": lambda depth: _nested(lambda inner: {"children": [inner]}, depth, {}),
    "struct": lambda depth: {"extra": _nested(lambda inner: {"a": inner}, depth, {})},
    "empty struct": lambda depth: {"extra": _nested(lambda inner: {"a": inner}, depth, {"a": None})},
    "struct and list": lambda depth: {"extra": _nested(lambda inner: {"a": [inner]}, depth, {})},
    "scalars in a map": lambda depth: _nested(lambda inner: {"next": inner}, depth, {"counts": {"a": 1}}),
    "nothing in a map": lambda depth: _nested(lambda inner: {"next": inner}, depth, {"counts": {}}),
    "map": lambda depth: _nested(lambda inner: {"named": {"a": inner}}, depth, {}),
    "list": lambda depth: {"extra": {"a": _nested(lambda inner: [inner], depth, [])}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_nesting_limit_is_that_of_the_protobuf_parser(shape: str) -> None:
    """The bound is that of the parser, exactly: nothing is written that nobody reads, nothing is refused needlessly."""
    taken = []
    refusals, longest = set(), 0
    for depth in DEPTHS:
        body = Value(SHAPES[shape](depth))
        try:
            wire = NODE.to_wire(body)
        except Unrepresentable as exc:
            refusals.add(str(exc).partition(": ")[2])
            longest = max(longest, len(str(exc)))
            continue
        pb.Node.FromString(wire)
        taken.append(depth)
    assert refusals == {"nested deeper than 100 messages"}
    assert longest < 300
    assert taken == [depth for depth in DEPTHS if depth <= _deepest(shape)]


def _deepest(shape: str) -> int:
    """Return the maximum depth that the parser of the library accepts."""
    depth = 1
    while True:
        message = pb.Node()
        _build(message, SHAPES[shape](depth + 1))
        try:
            pb.Node.FromString(message.SerializeToString())
        except Exception:  # noqa: BLE001 - any exception means that it is refused
            return depth
        depth += 1


def _build(message: Any, value: Any) -> None:  # noqa: ANN401
    """Fill a message without any limit, for the few shapes of this test."""
    while value:
        if "next" in value:
            message, value = message.next, value["next"]
            message.SetInParent()
        elif "children" in value:
            message, value = message.children.add(), value["children"][0]
        elif "counts" in value:
            message.counts.update(value["counts"])
            return
        elif "named" in value:
            message, value = message.named["a"], value["named"]["a"]
        else:
            message.extra.SetInParent()
            message.extra.update(value["extra"])
            return


def test_body_that_contains_itself_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["next"] = endless
    with pytest.raises(Unrepresentable, match="nested deeper than 100 messages"):
        NODE.to_wire(Value(endless))
    anything: dict[str, object] = {}
    anything["a"] = [anything]
    with pytest.raises(Unrepresentable, match="nested deeper than 100 messages"):
        NODE.to_wire(Value({"extra": anything}))


def _packed(depth: int) -> bytes:
    """Pack a message into an Any of a message, repeatedly; each parse starts to count levels again."""
    node = pb.Node()
    for _ in range(depth):
        outer = pb.Node()
        outer.any.type_url, outer.any.value = "x/demo.Node", node.SerializeToString()
        node = outer
    return bytes(node.SerializeToString())


def test_nested_any_messages_are_bounded_when_printed() -> None:
    for depth in (1, 30, 60):
        body = NODE.from_wire(_packed(depth))
        # The printed message is parsed again, unless it is too deep for a parser.
        if depth < 50:
            assert NODE.to_wire(body) == _packed(depth)
    for depth in (64, 128, 1000, 5000):
        with pytest.raises(Malformed, match="nested deeper than 128"):
            NODE.from_wire(_packed(depth))


def test_nested_any_messages_are_bounded_when_parsed() -> None:
    value: object = {}
    for _ in range(3000):
        value = {"any": {"@type": "x/demo.Node", "next": value}}
    with pytest.raises(Unrepresentable, match="nested deeper than 100 messages"):
        NODE.to_wire(Value(value))


def test_message_too_deep_for_json_is_malformed() -> None:
    """Repeated messages take two levels of JSON each: the parser takes 100 of them, JSON as we have it 64."""
    node = pb.Node()
    for _ in range(90):
        node = pb.Node(children=[node])
    with pytest.raises(Malformed, match="nested deeper than 128"):
        NODE.from_wire(node.SerializeToString())


def test_very_deep_message_is_malformed_without_a_recursion_error() -> None:
    data = b""
    for _ in range(3000):
        data = b"\x12" + _varint(len(data)) + data
    with pytest.raises(Malformed, match=r"bytes that are not a demo\.Node"):
        NODE.from_wire(data)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


EXTENDABLE = """
syntax = "proto2"; package two; import "google/protobuf/any.proto";
message M { optional M next = 1; optional google.protobuf.Any any = 2; extensions 100 to 200; }
service S { rpc Do(M) returns (M); }
"""


def test_messages_with_extensions_are_bounded(tmp_path: Path) -> None:
    """The library prints these, and counts nothing then."""
    message: Any = load_services([compiled_schema.compiled(tmp_path, EXTENDABLE)])["two.S"].methods["Do"].request
    codec = MessageCodec(message, is_request=True)
    node = message()
    for _ in range(1000):
        outer = message()
        outer.any.type_url, outer.any.value = "x/two.M", node.SerializeToString()
        node = outer
    with pytest.raises(Malformed, match=r"a two\.M that is nested too deeply"):
        codec.from_wire(node.SerializeToString())
    with pytest.raises(Malformed, match=r"a two\.M without a JSON form: .*x/two\.Gone"):
        codec.from_wire(message(any={"type_url": "x/two.Gone"}).SerializeToString())
    with pytest.raises(Unrepresentable, match="Max recursion depth"):
        codec.to_wire(Value(_nested(lambda inner: {"next": inner}, 3000, {})))
    assert codec.from_wire(codec.to_wire(Value({"next": {}}))) == Json(b'{"next":{}}')
