"""`fiveways publish`: one value on one topic."""

from dataclasses import dataclass
from pathlib import Path

from fiveways.cli.connection_options import ConnectionOptions, run_async
from fiveways.cli.errors import UsageError
from fiveways.cli.json_io import check_readable, parse_json_argument
from fiveways.model import topics


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What the user typed."""

    topic: str
    body: str | None = None
    retain: bool = False
    attachments: tuple[Path, ...] = ()
    timeout: float = 30.0


def publish(gate: ConnectionOptions, wish: PublishOptions) -> None:
    """Publish; it returns when the hub has it."""
    if gate.is_mqtt and wish.attachments:
        raise UsageError("a message of a broker has no attachments")
    try:
        topics.parse(wish.topic, topics.MQTT if gate.is_mqtt else topics.UMQ)
    except topics.BadTopic as exc:
        raise UsageError(str(exc)) from exc
    run_async(_publish(gate, wish, parse_json_argument(wish.body), [check_readable(path) for path in wish.attachments]))


async def _publish(gate: ConnectionOptions, wish: PublishOptions, data: object, attachments: list[Path]) -> None:
    if gate.is_mqtt:
        async with gate.connect_broker(wish.timeout) as broker:
            await broker.publish(wish.topic, data, retain=wish.retain)
        return
    async with gate.connect_within(wish.timeout) as peer:
        await peer.publish(wish.topic, data, retain=wish.retain, attachments=attachments)
