"""Tests of the checks of Origin and Host."""

import pytest

from fiveways.transports.origin import check_origin

ORIGINS = ("https://app.example", "http://dev.example:3000/", "pages.example", "app://Desktop")
HOSTS = ("hub.example", "edge.example:8443", "192.0.2.1", "2001:db8::1", "")


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "localhost",
        "LocalHost:7500",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.9.9.9:7500",
        "[::1]",
        "[::1]:7500",
        "[::ffff:127.0.0.1]:80",
        "hub.example",
        "HUB.example:99",
        "hub.example.:99",
        "edge.example:8443",
        "192.0.2.1:7500",
        "[2001:db8::1]:7500",
    ],
)
def test_own_host_is_allowed(host: str | None) -> None:
    headers = {} if host is None else {"host": host}
    assert check_origin(headers, ORIGINS, HOSTS) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.localhost",
        "127.0.0.1.evil.example",
        "127.1",
        "0x7f000001",
        "0.0.0.0:7500",
        "128.0.0.1",
        "[::2]",
        "::1",
        "edge.example",
        "edge.example:443",
        "localhost:123456",
        "localhost:",
        "localhost:x",
        "user@localhost",
        "localhost/",
        "localhost, localhost",
        " localhost",
        "x" * 1000,
    ],
)
def test_other_host_is_refused(host: str) -> None:
    sentence = check_origin({"host": host}, ORIGINS, HOSTS)
    assert sentence is not None
    assert sentence.startswith("the host '")
    assert sentence.endswith(" is not allowed; add it to [server] hosts")
    assert len(sentence) < 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:8443",
        "http://[::1]:7500",
        "https://app.example",
        "https://app.example:443",
        "HTTPS://APP.example",
        "http://dev.example:3000",
        "http://pages.example",
        "https://pages.example:1234",
        "app://desktop",
    ],
)
def test_allowed_origin_may_connect(origin: str) -> None:
    assert check_origin({"host": "localhost:7500", "origin": origin}, ORIGINS, HOSTS) is None


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "https://evil.example",
        "http://app.example",
        "https://app.example:444",
        "https://app.example.evil.example",
        "https://evil.example/https://app.example",
        "https://user@localhost",
        "https://app.example/",
        "http://localhost:x",
        "file://",
        "app://other",
        "chrome-extension://localhost",
        "localhost",
        "http://dev.example",
        "http://localhost, http://evil.example",
        "https://hub.example",
    ],
)
def test_other_origin_is_refused(origin: str) -> None:
    sentence = check_origin({"host": "localhost:7500", "origin": origin}, ORIGINS, HOSTS)
    assert sentence is not None
    assert sentence.startswith("the origin '")
    assert sentence.endswith(" is not allowed; add it to [server] origins")


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("hub.example:7500", "http://hub.example:7500", True),
        ("hub.example", "http://hub.example", True),
        ("hub.example", "https://hub.example", True),
        ("hub.example:443", "https://hub.example", True),
        ("192.0.2.1:7500", "http://192.0.2.1:7500", True),
        ("[2001:db8::1]:7500", "http://[2001:db8::1]:7500", True),
        ("hub.example:7500", "http://hub.example", False),
        ("hub.example:7500", "http://hub.example:7501", False),
        ("hub.example", "http://edge.example:8443", False),
        ("hub.example:7500", "null", False),
    ],
)
def test_same_origin_page_may_connect(host: str, origin: str, allowed: bool) -> None:
    assert (check_origin({"host": host, "origin": origin}, (), HOSTS) is None) is allowed


def test_star_allows_every_host_and_origin() -> None:
    assert check_origin({"host": "x.example", "origin": "https://y.example"}, ["*"], ["*"]) is None


@pytest.mark.parametrize("allowed", [(), ("null",), ("*",)])
def test_origin_null_is_refused(allowed: tuple[str, ...]) -> None:
    sentence = check_origin({"host": "localhost", "origin": "null"}, allowed, allowed)
    assert sentence is not None
    assert "[server] origins" in sentence


def test_error_text_has_no_control_characters() -> None:
    sentence = check_origin({"host": "a\r\nb\x1b[2J"}, (), ())
    assert sentence is not None
    assert sentence.isprintable()
