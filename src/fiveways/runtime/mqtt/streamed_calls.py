"""Conversion of calls for services behind a broker."""

from collections.abc import Iterator

from msgspec.structs import replace

from fiveways.errors import Unrepresentable
from fiveways.model.messages import Call, HubMessage, Part
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.runtime.mqtt.broker_config import BrokerConfig
from fiveways.wire.payload import Value


def split_call(call: Call, config: BrokerConfig) -> Iterator[HubMessage]:
    """Return the messages of a call; for a service that takes a stream, an array becomes its elements.

    A method without a streamed response is never asked for one, even if the caller accepts it: the service need not
    mark the last part.
    """
    if call.stream and call.method not in config.gives_stream:
        call = replace(call, stream=False)
    if call.more or call.method not in config.takes_stream:
        yield call
        return
    value = call.body.value()
    elements = value if isinstance(value, list) else [value]
    if not elements:
        raise Unrepresentable("a stream without elements, which RPC over MQTT cannot begin")
    for element in elements:  # all must be representable before the first is sent
        config.codec.to_wire(*bridge.call_target(call.method, call.spelling), Value(element), bridge.REQUEST)
    yield replace(call, body=Value(elements[0]), more=True)
    last = len(elements) - 1
    for number, element in enumerate(elements[1:], 1):
        yield Part(call.id, Value(element), last=number == last)
    if not last:
        yield Part(call.id, None, last=True)
