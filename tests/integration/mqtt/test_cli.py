"""Brokers on the command line."""

import asyncio
from typing import Any

from fiveways.client.mqtt.peer import connect_mqtt
from tests.support import hubs
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.raw_peers import PATIENCE
from tests.support.running import async_test

pb: Any = greeter().module
SCHEMA = ("--schema", str(greeter().path))


class Greeter:
    """A service to call."""

    async def SayHello(self, request: Any) -> Any:  # noqa: ANN401, N802
        return pb.HelloReply(text=f"Hello {request.name}")

    async def Count(self, request: Any) -> Any:  # noqa: ANN401, N802
        for number in range(request.up_to):
            yield pb.CountReply(number=number)


async def run_command(*arguments: str) -> tuple[int, str, str]:
    return await asyncio.to_thread(hubs.run, *arguments)


@async_test
async def test_service_is_called_with_json_and_a_schema(broker: RunningBroker) -> None:
    url = f"mqtt-rpc+{broker.url}"
    async with connect_mqtt(broker.url, timeout=PATIENCE) as device, device.serve(pb, Greeter()):
        code, out, err = await run_command("call", f"{url}/Greeter", "SayHello", '{"name": "Bob"}', *SCHEMA)
        assert (code, err) == (0, "")
        assert '"text":"Hello Bob"' in out
        code, out, _ = await run_command("call", url, "Greeter/Count", '{"up_to": 2}', "--stream", *SCHEMA)
        assert (code, out.splitlines()) == (0, ['{"number":"0"}', '{"number":"1"}'])
        code, out, err = await run_command("call", f"{url}/Greeter", "SayHello", '{"nme": 1}', *SCHEMA)
        assert (code, out) == (1, "")
        assert "nme" in err
        code, _, err = await run_command("call", f"{url}/Nobody", "SayHello", "{}", "--timeout", "0.3")
        assert code in {1, 124}, err


@async_test
async def test_topics_are_published_and_subscribed_at_a_broker(broker: RunningBroker) -> None:
    url = f"mqtt-rpc+{broker.url}"
    assert (await run_command("publish", url, "cli/kept", "21.5", "--retain"))[0] == 0
    code, out, err = await run_command(
        "subscribe", url, "cli/+", "--count", "1", "--envelope", "--timeout", str(PATIENCE)
    )
    assert (code, out.strip(), err) == (0, '{"topic":"cli/kept","data":21.5}', "")


def test_commands_that_a_broker_does_not_support_are_refused() -> None:
    url = "mqtt-rpc+mqtt://localhost:1"
    for arguments, sentence in (
        (("push", url, "q", "1"), "an MQTT broker supports only call, publish and subscribe"),
        (("call", url, "a.b", "--verbose"), "does not support --verbose"),
        (("call", url, "a.b", "--attach", "x"), "does not support attachments"),
        (("call", "mqtt-rpc+tcp://h", "a.b"), "is not a broker scheme"),
        (
            ("call", "lrpm+ws://localhost:1", "a.b", "--schema", "x"),
            "--schema is only for services behind an MQTT broker",
        ),
        (("call", url, "a.b", "--schema", "no-such-file"), "no-such-file"),
    ):
        code, out, err = hubs.run(*arguments)
        assert (code, out) == (2, ""), (arguments, err)
        assert sentence in err
    code, _, err = hubs.run("call", url, "a.b", "--timeout", "2")
    assert code == 1
    assert "Traceback" not in err
