"""The protocols there are: one line each, loaded on first use."""

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
    """The protocol of that name; KeyError if there is none."""
    module, _, attribute = PROTOCOLS[name].partition(":")
    spec = getattr(import_module(module), attribute)
    if not isinstance(spec, ProtocolSpec):
        raise TypeError(f"{PROTOCOLS[name]} is no ProtocolSpec")
    return spec


def all_specs() -> list[ProtocolSpec]:
    """Every protocol, in the order of the table above."""
    return [load(name) for name in PROTOCOLS]
