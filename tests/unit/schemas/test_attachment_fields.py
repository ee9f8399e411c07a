"""Attachment fields of messages in the configuration."""

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


def test_attachment_field_is_found_for_each_method_with_the_message() -> None:
    made = attached(crossing(), {"crossing.Parcel": "files"})
    for topic, kind in (("/Desk", "Carry"), ("/desk", "carry"), ("/counter", "Carry")):
        assert made(topic, kind, "request") == ("files", True)
        assert made(topic, kind, "response") == ("files", True)
    assert made("/Desk", "Tell", "request") is None
    assert made("/Desk", "Nothing", "request") is None
    assert made("/elsewhere", "Carry", "request") is None


def test_attachment_field_may_be_singular_and_in_one_message_only() -> None:
    made = attached(greeter().path, {"demo.SumReply": "digest"})
    assert made("/Greeter", "Sum", "response") == ("digest", False)
    assert made("/Greeter", "Sum", "request") is None


@pytest.mark.parametrize(
    ("attachments", "says"),
    [
        ({"demo.Nothing": "digest"}, "no method of a known service has the request or response demo.Nothing"),
        ({"demo.SumReply": "total"}, "demo.SumReply has no field total of type bytes; such fields: digest"),
        ({"demo.HelloReply": "photo"}, "demo.HelloReply has no field photo of type bytes; such fields: none"),
    ],
)
def test_invalid_attachment_field_raises_schema_error(attachments: dict[str, str], says: str) -> None:
    with pytest.raises(BadBrokerConfig) as refused:
        attached(greeter().path, attachments)
    assert str(refused.value) == f"mqtt.attachments: {says}"


def test_codec_without_configuration_has_no_attachment_fields() -> None:
    assert BrokerConfig(MqttSettings(schemas=(str(greeter().path),))).attachment_fields is None
