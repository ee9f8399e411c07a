"""Calls as the services behind a broker can take them."""

from collections.abc import Iterator

from msgspec.structs import replace

from fiveways.errors import Unrepresentable
from fiveways.model.messages import Call, HubMessage, Part
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.runtime.mqtt.broker_config import BrokerConfig
from fiveways.wire.payload import Value


def split_call(call: Call, plan: BrokerConfig) -> Iterator[HubMessage]:
    """Return a call as it is, but to a service that takes a stream: an array is its elements there.

    However gladly its caller took a stream, one that gives none is not asked for it: it need not say where its answer
    ends.
    """
    if call.stream and call.method not in plan.gives_stream:
        call = replace(call, stream=False)
    if call.more or call.method not in plan.takes_stream:
        yield call
        return
    value = call.body.value()
    elements = value if isinstance(value, list) else [value]
    if not elements:
        raise Unrepresentable("a stream without elements, which RPC over MQTT cannot begin")
    for element in elements:  # all of them can be said, before the first is
        plan.codec.to_wire(*bridge.call_target(call.method, call.spelling), Value(element), bridge.REQUEST)
    yield replace(call, body=Value(elements[0]), more=True)
    last = len(elements) - 1
    for number, element in enumerate(elements[1:], 1):
        yield Part(call.id, Value(element), last=number == last)
    if not last:
        yield Part(call.id, None, last=True)
