"""The access lists that docs/mqtt.md recommends for a separate broker."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fiveways.transports.mqtt_link import Broker, Will, open_mqtt
from tests.support.broker_hubs import client_of, hub_at
from tests.support.broker_processes import RunningBroker, Wanted, mosquitto
from tests.support.paths import ROOT
from tests.support.rpc_service import Bare, bare
from tests.support.running import async_test
from tests.support.waiting import until

DOCS = ROOT / "docs" / "mqtt.md"
FORGED = b'{"/hub":0,"/fiveways":0,"/callback":0}'


def documented_list() -> str:
    """Return the list for Mosquitto from the documentation."""
    match = re.search(r"```text\n(# clients without a user.*?)```", DOCS.read_text(), re.DOTALL)
    assert match is not None
    return match[1]


@contextmanager
def access_list() -> Iterator[Path]:
    """A file with that list, readable for Mosquitto's user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "acl")
        file.write_text(documented_list())
        file.chmod(0o644)
        yield file


async def forge(broker: RunningBroker) -> None:
    """Try to claim the topics of a hub as a client without a user."""
    url = Broker("127.0.0.1", broker.port)
    for topic in ("fiveways/hubs/!", "fiveways/hubs/000"):
        link = await open_mqtt(url, Bare(topic), will=Will(topic, FORGED))
        link.publish(topic, FORGED)
        link.publish(topic, FORGED, retain=True)
        link.abort()


@async_test
async def test_mosquitto_list_lets_only_hubs_publish_claims() -> None:
    with access_list() as lists:
        extra = f"acl_file {lists}\nallow_anonymous true"
        with mosquitto(Wanted("hub", "s3cret", extra=extra)) as broker:
            async with bare(broker, "fiveways/hubs/+") as listener, hub_at(broker), client_of(broker) as device:
                await until(lambda: listener.heard.qsize() > 0)
                await forge(broker)
                assert [await device.call("hub.echo", number) for number in range(5)] == [*range(5)]
                received = [listener.heard.get_nowait() for _ in range(listener.heard.qsize())]
                assert FORGED not in [each.payload for each in received]
