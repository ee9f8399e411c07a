"""Tests of broker URLs."""

import pytest

from fiveways.transports.mqtt_broker import Broker

SECRET = "hunter2"  # noqa: S105


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mqtt://host", ("host", 1883, False, "", "")),
        ("mqtts://host", ("host", 8883, True, "", "")),
        ("MQTT://Host:17/", ("host", 17, False, "", "")),
        ("mqtt://me@host", ("host", 1883, False, "me", "")),
        ("mqtt://me:pass@host:1", ("host", 1, False, "me", "pass")),
        ("mqtt://m%40e:p%2Fa%3Ass@host", ("host", 1883, False, "m@e", "p/a:ss")),
        ("mqtt://:token@host", ("host", 1883, False, "", "token")),
        ("mqtt://[::1]:1884", ("::1", 1884, False, "", "")),
    ],
)
def test_url_is_parsed(url: str, expected: tuple[str, int, bool, str, str]) -> None:
    broker = Broker.parse(url)
    assert (broker.host, broker.port, broker.tls, broker.user, broker.password) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "host:1883",
        f"http://me:{SECRET}@host",
        "mqtt://",
        f"mqtt://me:{SECRET}@",
        f"mqtt://me:{SECRET}",
        f"mqtt://me:{SECRET}/x@host",
        f"mqtt://me:{SECRET}@host:0",
        f"mqtt://me:{SECRET}@host:65536",
        f"mqtt://me:{SECRET}@host:x",
        f"mqtt://me:{SECRET}@host/path",
        f"mqtt://me:{SECRET}@host?x=1",
        f"mqtt://me:{SECRET}@host#x",
        f"mqtt://me:{SECRET}%00@host",
        f"mqtt://me:{SECRET}@[::1",
        f"mqtt://{'x' * 65536}:{SECRET}@host",
    ],
)
def test_invalid_url_error_has_no_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="a broker's URL looks like") as caught:
        Broker.parse(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_broker_texts_omit_the_password() -> None:
    broker = Broker.parse(f"mqtts://me:{SECRET}@host:17")
    assert str(broker) == broker.original_url == "mqtts://me@host:17"
    assert SECRET not in repr(broker)
    assert str(Broker.parse("mqtt://[::1]")) == "mqtt://[::1]:1883"
