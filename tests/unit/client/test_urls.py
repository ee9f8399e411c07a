"""Client URLs."""

import pytest

from fiveways.client.urls import SCHEMES, Address, BadUrl, parse, parse_mqtt


@pytest.mark.parametrize(
    ("original_url", "protocol", "url", "subprotocol"),
    [
        ("umq+ws://localhost", "umq", "ws://localhost:7500/umq", "umq.1"),
        ("umq+ws://localhost:7501/", "umq", "ws://localhost:7501/umq", "umq.1"),
        ("umq36+ws://[::1]:80", "umq36", "ws://[::1]:80/umq36", "umq36.1"),
        ("lrpm+ws://hub.example/a/b", "lrpm-json", "ws://hub.example:7500/a/b", "lrpm.json"),
        ("lrpm+ws://h?encoding=json", "lrpm-json", "ws://h:7500/lrpm", "lrpm.json"),
        ("lrpm+wss://h?encoding=cbor", "lrpm-cbor", "wss://h:443/lrpm", "lrpm.cbor"),
        ("lrpm+ws://h/?a=1&encoding=cbor&b=", "lrpm-cbor", "ws://h:7500/lrpm?a=1&b=", "lrpm.cbor"),
        ("UMQ+WS://h", "umq", "ws://h:7500/umq", "umq.1"),
        ("nq+ws://h", "nq", "ws://h:7500/nq", "nq.1"),
        ("nq+wss://h", "nq", "wss://h:443/nq", "nq.1"),
        ("nq+http://h", "nq", "http://h:7500/nq", "nq.1"),
        ("nq+https://h/x?y=1", "nq", "https://h:443/x?y=1", "nq.1"),
        ("nq+zmq://h", "nq", "zmq://h:7555", "nq.1"),
        ("nq+zmq://[::1]:80/", "nq", "zmq://[::1]:80", "nq.1"),
    ],
)
def test_url_has_protocol_address_and_subprotocol(original_url: str, protocol: str, url: str, subprotocol: str) -> None:
    assert parse(original_url) == Address(protocol, url, subprotocol, original_url)


@pytest.mark.parametrize("url", ["ftp://h", "foo+bar://h", "localhost:7500", "", "umq+ws"])
def test_error_of_a_wrong_scheme_lists_all_schemes(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse(url)
    assert all(scheme in str(caught.value) for scheme in SCHEMES)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("lrpm://h:1", "lrpm:// has no transport; use one of lrpm+ws://, lrpm+wss://, such as lrpm+ws://h:1"),
        ("umq+tcp://h", "tcp is not a supported transport; use one of umq+ws://, umq+wss://, such as umq+ws://h"),
        ("umq+zmq://h", "zmq is not a supported transport for umq; use one of umq+ws://, umq+wss://, such as "),
        ("zmq://h:1", "zmq:// has no protocol; use one of nq+zmq://, such as nq+zmq://h:1"),
        ("umq+http://h", "http is not a supported transport for umq; use one of umq+ws://, umq+wss://, such as "),
        (
            "ws://h",
            "ws:// has no protocol; use one of umq+ws://, umq36+ws://, lrpm+ws://, nq+ws://, such as umq+ws://h",
        ),
        (
            "foo+wss://",
            "foo is not a supported protocol; use one of umq+wss://, umq36+wss://, lrpm+wss://, nq+wss://",
        ),
        ("http://h:1", "http:// has no protocol; use one of nq+http://, such as nq+http://h:1"),
        ("localhost:7500", "'localhost:7500' has no scheme; "),
        ("ftp://h", "ftp:// has neither protocol nor transport; "),
    ],
)
def test_error_names_the_missing_part_of_a_scheme(url: str, sentence: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse(url)
    assert str(caught.value).startswith(sentence)


def test_unusual_path_gives_a_hint() -> None:
    assert parse("lrpm+ws://h?encoding=cbor").path_hint == parse("umq36+ws://h/umq36").path_hint == ""
    assert parse("umq+ws://h/lrpm").path_hint == "; a hub serves umq under /umq, and the URL says /lrpm"


@pytest.mark.parametrize(
    ("url", "broker", "service"),
    [
        ("mqtt-rpc+mqtt://h", "mqtt://h:1883", ""),
        ("mqtt-rpc+mqtts://h/", "mqtts://h:8883", ""),
        ("mqtt-rpc+mqtt://[::1]:99/Greeter", "mqtt://[::1]:99", "Greeter"),
        ("mqtt-rpc+mqtt://h/my/cool%20service", "mqtt://h:1883", "my/cool service"),
    ],
)
def test_broker_url_has_address_and_service(url: str, broker: str, service: str) -> None:
    parsed_broker, parsed_service = parse_mqtt(url)
    assert (str(parsed_broker), parsed_service) == (broker, service)
    with pytest.raises(BadUrl, match="is for an MQTT broker"):
        parse(url)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mqtt-rpc+ws://h", "is not a broker scheme"),
        ("mqtt-rpc+mqtt://", "names no host"),
        ("mqtt-rpc+mqtt://h:99999", "port"),
        ("mqtt-rpc+mqtt://ann:s3cret@h", "must not contain credentials"),
    ],
)
def test_invalid_broker_url_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(BadUrl, match=sentence) as caught:
        parse_mqtt(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("umq+ws://", "has no host"),
        ("umq+ws:///umq", "has no host"),
        ("umq+ws://h:99999", "is not a valid URL"),
        ("umq+ws://h:x", "is not a valid URL"),
        ("lrpm+ws://h?encoding=xml", "json or cbor"),
        ("umq+ws://h?encoding=cbor", "only one"),
        ("nq+zmq://h/nq", r"ZeroMQ has no paths; expected a URL such as nq\+zmq://h:7555"),
        ("nq+zmq://h?peer=1", "ZeroMQ has no paths"),
    ],
)
def test_invalid_url_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(BadUrl, match=sentence):
        parse(url)


def test_secret_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(BadUrl, match="token") as caught:
        parse("umq+ws://alice:s3cret@h")
    assert "s3cret" not in str(caught.value)
