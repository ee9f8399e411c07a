"""Traffic by way of a broker, for hubs that have one."""

from typing import Final

from fiveways.client.mqtt.peer import MqttPeer
from fiveways.traffic.actions import CALL_TIMEOUT
from fiveways.traffic.plan import Step

SUPPORTED_KINDS: Final = {"quick", "slow", "busy", "unknown", "publication"}
"""What is done here; other steps of a plan are left to the others."""


async def run_step(step: Step, peer: MqttPeer) -> None:
    """Do it. Without a schema, bodies are bytes, as the method `digest` wants them."""
    if step.kind == "publication":
        await peer.publish(f"traffic/{step.service}/news", {"number": step.number}, timeout=CALL_TIMEOUT)
    elif step.kind == "busy":
        await peer.call("hub.echo", {"number": step.number}, timeout=CALL_TIMEOUT)
    else:
        method = "no_such_thing" if step.kind == "unknown" else "digest"
        await peer.call(f"{step.service}.{method}", str(step.number).encode(), timeout=CALL_TIMEOUT)
