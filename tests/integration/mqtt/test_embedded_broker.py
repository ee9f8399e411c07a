"""The embedded broker: it runs before the hub reports ready, and ends with the hub for any reason."""

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fiveways.client.mqtt.peer import connect_mqtt
from fiveways.errors import Refused
from fiveways.runtime.mqtt import embedded_broker
from fiveways.runtime.mqtt.embedded_broker import BrokerStartError, EmbeddedBroker
from fiveways.settings.sections import MqttSettings, Secret
from fiveways.transports.mqtt_link import Broker, MqttMessage, Will, open_mqtt
from tests.support import hubs
from tests.support.broker_hubs import is_ready, wait_for_retained
from tests.support.raw_peers import PATIENCE, hub, settings
from tests.support.running import async_test
from tests.support.waiting import until


def is_listening(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + PATIENCE
    while is_listening(pid):
        assert time.monotonic() < until, "the broker is still there"
        time.sleep(0.02)


def broker_of(pid: int) -> int:
    """Return the child process of a hub."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_broker_ends_with_its_hub(number: signal.Signals) -> None:
    with hubs.serving("--set", "mqtt.enabled=true", "--set", "mqtt.port=0") as hub:
        code, out, err = hubs.run("call", hub.url("mqtt-rpc"), "hub.echo", '{"a": 1}')
        assert (code, out.strip(), err) == (0, '{"a":1}', "")
        broker = broker_of(hub.process.pid)
        assert is_listening(broker)
        hub.signal(number)
        hub.process.wait(PATIENCE)
        wait_until_gone(broker)


def test_next_hub_removes_the_folder_of_a_killed_hub_only(tmp_path: Path) -> None:
    def folders() -> set[Path]:
        return set(tmp_path.glob("fiveways-broker-*"))

    flags = "--set", "mqtt.enabled=true", "--set", "mqtt.port=0"
    with hubs.serving(*flags, TMPDIR=str(tmp_path)) as killed, hubs.serving(*flags, TMPDIR=str(tmp_path)):
        broker, both = broker_of(killed.process.pid), folders()
        assert len(both) == 2
        killed.signal(signal.SIGKILL)
        killed.process.wait(PATIENCE)
        wait_until_gone(broker)
        with hubs.serving(*flags, TMPDIR=str(tmp_path)):
            now = folders()
            assert (len(now), len(now & both)) == (2, 1)
    assert not folders()


def test_hub_answers_again_after_a_kill_of_broker_or_hub(tmp_path: Path) -> None:
    store = f"store.path={tmp_path / 's'}"
    for _ in range(2):
        with hubs.serving("--set", "mqtt.enabled=true", "--set", "mqtt.port=0", "--set", store) as hub:
            for _ in range(2):
                code, out, err = hubs.run("call", hub.url("mqtt-rpc"), "hub.echo", "1", "--timeout", str(PATIENCE))
                assert (code, out.strip()) == (0, "1"), err
                os.kill(broker_of(hub.process.pid), signal.SIGKILL)
                hub.log_line("the embedded broker exited")
                hub.log_line("connected to the MQTT broker")
            hub.signal(signal.SIGKILL)


@async_test
async def test_killed_broker_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    broker = EmbeddedBroker(0, None)
    await broker.start()
    try:
        assert broker._process is not None
        first = broker._process.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: broker._process is not None and broker._process.pid != first)
        await until(lambda: not embedded_broker._is_free(broker.port))
        async with connect_mqtt(broker.url, timeout=PATIENCE) as peer:
            await peer.publish("a", 1)
        assert "the embedded broker exited" in caplog.text
    finally:
        await broker.stop()


@async_test
async def test_retained_messages_are_stored_beside_the_store(tmp_path: Path) -> None:
    for turn in range(2):
        broker = EmbeddedBroker(0, tmp_path / "kept")
        await broker.start()
        try:
            async with connect_mqtt(broker.url, timeout=PATIENCE) as peer:
                if not turn:
                    await peer.publish("kept/a", "value", retain=True)
                assert await wait_for_retained(peer, "kept/#") == "value"
        finally:
            await broker.stop()


class IgnoringClient:
    """A client that ignores its messages. Implements `MqttReceiver`."""

    def received(self, message: MqttMessage) -> None: ...

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None: ...


@async_test
async def test_only_hubs_can_publish_claims() -> None:
    mqtt = MqttSettings(enabled=True, port=0, user="hubs", password=Secret('p"w$ö\\'))
    async with hub(replace(settings(), mqtt=mqtt)) as place:
        assert place.server._mqtt is not None
        assert place.server._mqtt._embedded_broker is not None
        broker = Broker.parse(place.server._mqtt._embedded_broker.url)
        heard: list[MqttMessage] = []
        territory = place.server._mqtt._peer._ownership  # type: ignore[union-attr]
        take = territory.receive  # type: ignore[union-attr]

        def monitored(message: MqttMessage) -> None:
            heard.append(message)
            take(message)

        territory.receive = monitored  # type: ignore[union-attr,method-assign]
        forged = b'{"/hub":0,"/fiveways":0,"/callback":0}'
        for place_of_claim in ("fiveways/hubs/!", territory.election.own_topic, "$MQTT/msgs/fiveways/hubs/!"):  # type: ignore[union-attr]
            link = await open_mqtt(broker, IgnoringClient(), will=Will(place_of_claim, forged))
            link.publish(place_of_claim, forged)
            link.publish(place_of_claim, forged, retain=True)
            link.publish("$JS/API/STREAM/DELETE/$MQTT_msgs", b"")
            link.abort()
        async with connect_mqtt(place.server._mqtt._embedded_broker.url, timeout=PATIENCE) as device:
            for _ in range(3):
                assert await device.call("hub.echo", 1) == 1
        assert heard == []
        # A second hub needs the credentials.
        async with hub(replace(settings(), mqtt=replace(mqtt, url=place.server._mqtt._embedded_broker.url))) as second:
            await until(lambda: is_ready(second))
            assert heard
        with pytest.raises(Refused):
            await open_mqtt(replace(broker, user="hubs", password=f"not {broker.user}"), IgnoringClient())


@async_test
async def test_used_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerStartError, match=f"port {port} is in use; if by a broker, set mqtt.url to it"):
            await EmbeddedBroker(port, None).start()


def test_invalid_settings_are_reported_before_the_start() -> None:
    for assignment, sentence in (
        ("mqtt.url=http://h", "mqtt.url: 'http' is not a URL scheme of MQTT"),
        ("mqtt.schemas=no-such.binpb", "no-such.binpb"),
        ("mqtt.serve=/a+b", "mqtt.serve: '/a+b' is not a valid topic for methods"),
        ("mqtt.url=mqtt://ann:s3cret@h", "mqtt.url must not contain credentials"),
        ("mqtt.identity=nobody", "mqtt.identity: there is no [[auth.identity]] 'nobody'"),
    ):
        code, out, err = hubs.run("serve", "--port", "0", "--set", "mqtt.enabled=true", "--set", assignment)
        assert (code, out) == (1, ""), err
        assert sentence in err
        assert "Traceback" not in err
        assert "s3cret" not in err
