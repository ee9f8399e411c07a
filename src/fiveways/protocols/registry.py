"""The registry of protocols, loaded on first use."""

from functools import cache
from importlib import import_module

from fiveways.protocols.base import ProtocolSpec

PROTOCOLS = {
    "umq36": "fiveways.protocols.umq36:SPEC",
    "umq": "fiveways.protocols.umq:SPEC",
    "lrpm-json": "fiveways.protocols.lrpm:JSON",
    "lrpm-cbor": "fiveways.protocols.lrpm:CBOR",
    "mqtt-rpc": "fiveways.protocols.mqtt_rpc:SPEC",
    "nq": "fiveways.protocols.nq:SPEC",
}


@cache
def load(name: str) -> ProtocolSpec:
    """Return the protocol of that name; KeyError if there is none."""
    module, _, attribute = PROTOCOLS[name].partition(":")
    spec = getattr(import_module(module), attribute)
    if not isinstance(spec, ProtocolSpec):
        raise TypeError(f"{PROTOCOLS[name]} is not a ProtocolSpec")
    return spec


def all_specs() -> list[ProtocolSpec]:
    """Return all protocols in the order of the table."""
    return [load(name) for name in PROTOCOLS]
