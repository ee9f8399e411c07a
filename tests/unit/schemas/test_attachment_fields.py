"""Which field of a message holds attachments is said in the configuration, and checked there."""

from pathlib import Path

import pytest

from fiveways.protocols.mqtt_rpc.attachments import AttachmentFieldLookup
from fiveways.runtime.mqtt.broker_config import BadBrokerConfig, BrokerConfig
from fiveways.settings.sections import MqttSettings
from tests.support.compiled_schema import crossing, greeter


def attached(schema: Path, attachments: dict[str, str]) -> AttachmentFieldLookup:
    made = BrokerConfig(MqttSettings(schemas=(str(schema),), attachments=attachments)).attachment_fields
    assert made is not None
    return made


def test_a_field_is_found_for_every_method_whose_message_has_it() -> None:
    made = attached(crossing(), {"crossing.Parcel": "files"})
    for topic, kind in (("/Desk", "Carry"), ("/desk", "carry"), ("/counter", "Carry")):
        assert made(topic, kind, "request") == ("files", True)
        assert made(topic, kind, "response") == ("files", True)
    assert made("/Desk", "Tell", "request") is None
    assert made("/Desk", "Nothing", "request") is None
    assert made("/elsewhere", "Carry", "request") is None


def test_a_field_need_not_be_repeated_nor_be_in_both_messages() -> None:
    made = attached(greeter().path, {"demo.SumReply": "digest"})
    assert made("/Greeter", "Sum", "response") == ("digest", False)
    assert made("/Greeter", "Sum", "request") is None


@pytest.mark.parametrize(
    ("attachments", "says"),
    [
        ({"demo.Nothing": "digest"}, "no method of a known service takes or gives a message demo.Nothing"),
        ({"demo.SumReply": "total"}, "demo.SumReply has no field total of bytes; there are digest"),
        ({"demo.HelloReply": "photo"}, "demo.HelloReply has no field photo of bytes; there are none"),
    ],
)
def test_what_cannot_hold_them_is_refused_by_name(attachments: dict[str, str], says: str) -> None:
    with pytest.raises(BadBrokerConfig) as refused:
        attached(greeter().path, attachments)
    assert str(refused.value) == f"mqtt.attachments: {says}"


def test_without_a_word_about_them_nothing_is_looked_for() -> None:
    assert BrokerConfig(MqttSettings(schemas=(str(greeter().path),))).attachment_fields is None
