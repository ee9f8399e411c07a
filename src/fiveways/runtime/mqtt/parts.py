"""Calls as the services behind a broker can take them."""

from collections.abc import Iterator

from msgspec.structs import replace

from fiveways.errors import Unrepresentable
from fiveways.model.messages import Call, Part, Word
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.runtime.mqtt.plan import Plan
from fiveways.wire.payload import Value


def in_parts(call: Call, plan: Plan) -> Iterator[Word]:
    """Return a call as it is, but to a service that takes a stream: an array is its elements there.

    However gladly its caller took a stream, one that gives none is not asked for it: it need not say where its answer
    ends.
    """
    if call.stream and call.method not in plan.streaming:
        call = replace(call, stream=False)
    if call.more or call.method not in plan.streamed:
        yield call
        return
    value = call.body.value()
    elements = value if isinstance(value, list) else [value]
    if not elements:
        raise Unrepresentable("a stream without elements, which RPC over MQTT cannot begin")
    for element in elements:  # all of them can be said, before the first is
        plan.codec.to_wire(*bridge.target_of(call.method, call.spelling), Value(element), bridge.REQUEST)
    yield replace(call, body=Value(elements[0]), more=True)
    last = len(elements) - 1
    for number, element in enumerate(elements[1:], 1):
        yield Part(call.id, Value(element), last=number == last)
    if not last:
        yield Part(call.id, None, last=True)
