"""Traffic by way of a broker, for hubs that have one."""

from typing import Final

from fiveways.client.mqtt.peer import MqttPeer
from fiveways.traffic.acts import PATIENCE
from fiveways.traffic.plan import Step

KINDS: Final = {"quick", "slow", "busy", "unknown", "publication"}
"""What is done here; other steps of a plan are left to the others."""


async def act(step: Step, peer: MqttPeer) -> None:
    """Do it. Without a schema, bodies are bytes, as the method `digest` wants them."""
    if step.kind == "publication":
        await peer.publish(f"traffic/{step.service}/news", {"number": step.number}, timeout=PATIENCE)
    elif step.kind == "busy":
        await peer.call("hub.echo", {"number": step.number}, timeout=PATIENCE)
    else:
        method = "no_such_thing" if step.kind == "unknown" else "digest"
        await peer.call(f"{step.service}.{method}", str(step.number).encode(), timeout=PATIENCE)
