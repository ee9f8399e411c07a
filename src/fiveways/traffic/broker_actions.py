"""Actions of a client behind the MQTT broker of the hub."""

from typing import Final

from fiveways.client.mqtt.peer import MqttPeer
from fiveways.traffic.actions import CALL_TIMEOUT
from fiveways.traffic.plan import Step

SUPPORTED_KINDS: Final = {"quick", "slow", "busy", "unknown", "publication"}
"""Kinds of steps that a client behind a broker can run."""


async def run_step(step: Step, peer: MqttPeer) -> None:
    """Run a step. Without a schema, bodies are bytes, as the method `digest` requires."""
    if step.kind == "publication":
        await peer.publish(f"traffic/{step.service}/news", {"number": step.number}, timeout=CALL_TIMEOUT)
    elif step.kind == "busy":
        await peer.call("hub.echo", {"number": step.number}, timeout=CALL_TIMEOUT)
    else:
        method = "no_such_thing" if step.kind == "unknown" else "digest"
        await peer.call(f"{step.service}.{method}", str(step.number).encode(), timeout=CALL_TIMEOUT)
