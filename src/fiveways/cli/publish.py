"""`fiveways publish`: publish a value on a topic."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from fiveways.cli.connection_options import ConnectionOptions
from fiveways.cli.errors import UsageError
from fiveways.cli.json_io import check_readable, parse_json_argument
from fiveways.model import topics


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Options of `fiveways publish`."""

    topic: str
    body: str | None = None
    retain: bool = False
    attachments: tuple[Path, ...] = ()
    timeout: float = 30.0


def publish(connection: ConnectionOptions, options: PublishOptions) -> None:
    """Publish a value, and wait until the hub has received it."""
    if connection.is_mqtt and options.attachments:
        raise UsageError("MQTT brokers do not support attachments")
    try:
        topics.parse(options.topic, topics.MQTT if connection.is_mqtt else topics.UMQ)
    except topics.BadTopic as exc:
        raise UsageError(str(exc)) from exc
    asyncio.run(
        _publish(
            connection,
            options,
            parse_json_argument(options.body),
            [check_readable(path) for path in options.attachments],
        )
    )


async def _publish(
    connection: ConnectionOptions, options: PublishOptions, data: object, attachments: list[Path]
) -> None:
    if connection.is_mqtt:
        async with connection.connect_broker(options.timeout) as broker:
            await broker.publish(options.topic, data, retain=options.retain)
        return
    async with connection.connect_within(options.timeout) as peer:
        await peer.publish(options.topic, data, retain=options.retain, attachments=attachments)
