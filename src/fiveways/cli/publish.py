"""`fiveways publish`: one value on one topic."""

from dataclasses import dataclass
from pathlib import Path

from fiveways.cli.access import Access, run
from fiveways.cli.endings import UsageError
from fiveways.cli.jsonio import read_json, readable
from fiveways.model import topics


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    topic: str
    body: str | None = None
    retain: bool = False
    attach: tuple[Path, ...] = ()
    timeout: float = 30.0


def publish(gate: Access, wish: Wish) -> None:
    """Publish; it returns when the hub has it."""
    if gate.is_mqtt and wish.attach:
        raise UsageError("a message of a broker has no attachments")
    try:
        topics.parse(wish.topic, topics.MQTT if gate.is_mqtt else topics.UMQ)
    except topics.BadTopic as exc:
        raise UsageError(str(exc)) from exc
    run(_publish(gate, wish, read_json(wish.body), [readable(path) for path in wish.attach]))


async def _publish(gate: Access, wish: Wish, data: object, attachments: list[Path]) -> None:
    if gate.is_mqtt:
        async with gate.broker(wish.timeout) as broker:
            await broker.publish(wish.topic, data, retain=wish.retain)
        return
    async with gate.within(wish.timeout) as peer:
        await peer.publish(wish.topic, data, retain=wish.retain, attachments=attachments)
