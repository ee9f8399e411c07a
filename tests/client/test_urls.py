"""Client URLs."""

import pytest

from fiveways.client.urls import SCHEMES, Address, BadUrl, parse


@pytest.mark.parametrize(
    ("given", "protocol", "url", "subprotocol"),
    [
        ("umq+ws://localhost", "umq", "ws://localhost:7500/umq", "umq.1"),
        ("umq+ws://localhost:7501/", "umq", "ws://localhost:7501/umq", "umq.1"),
        ("umq36+ws://[::1]:80", "umq36", "ws://[::1]:80/umq36", "umq36.1"),
        ("lrpm+ws://hub.example/a/b", "lrpm-json", "ws://hub.example:7500/a/b", "lrpm.json"),
        ("lrpm+ws://h?encoding=json", "lrpm-json", "ws://h:7500/lrpm", "lrpm.json"),
        ("lrpm+wss://h?encoding=cbor", "lrpm-cbor", "wss://h:443/lrpm", "lrpm.cbor"),
        ("lrpm+ws://h/?a=1&encoding=cbor&b=", "lrpm-cbor", "ws://h:7500/lrpm?a=1&b=", "lrpm.cbor"),
        ("UMQ+WS://h", "umq", "ws://h:7500/umq", "umq.1"),
    ],
)
def test_a_url_says_protocol_place_and_subprotocol(given: str, protocol: str, url: str, subprotocol: str) -> None:
    assert parse(given) == Address(protocol, url, subprotocol, given)


@pytest.mark.parametrize("given", ["ws://h", "http://h", "umq://h", "umq+zmq://h", "localhost:7500", "", "umq+ws"])
def test_a_wrong_scheme_is_answered_with_all_schemes(given: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse(given)
    assert all(scheme in str(caught.value) for scheme in SCHEMES)


@pytest.mark.parametrize("given", ["nq+ws://h", "nq+http://h", "nq+zmq://h", "mqtt-rpc+mqtt://h", "mqtt-rpc+mqtts://h"])
def test_protocols_that_come_later_are_told_from_wrong_ones(given: str) -> None:
    with pytest.raises(BadUrl, match="not spoken by this client yet"):
        parse(given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("umq+ws://", "names no host"),
        ("umq+ws:///umq", "names no host"),
        ("umq+ws://h:99999", "is no URL"),
        ("umq+ws://h:x", "is no URL"),
        ("lrpm+ws://h?encoding=xml", "json or cbor"),
        ("umq+ws://h?encoding=cbor", "only one"),
    ],
)
def test_other_mistakes_get_a_sentence(given: str, sentence: str) -> None:
    with pytest.raises(BadUrl, match=sentence):
        parse(given)


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadUrl, match="token") as caught:
        parse("umq+ws://alice:s3cret@h")
    assert "s3cret" not in str(caught.value)
