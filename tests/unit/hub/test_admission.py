"""Admission and authentication of sessions."""

from typing import Any

import pytest

from fiveways.errors import Reason
from fiveways.hub.admission import ANONYMOUS_REFUSED, HUB_CLOSING, LOGIN_TIMED_OUT, WRONG_LOGIN
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.refusal import Refusal
from fiveways.hub.session_limits import TOO_MANY_SESSIONS
from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model.messages import (
    Call,
    Goodbye,
    Hello,
    HubMessage,
    Publish,
    Result,
    SetVariable,
    TopicClosed,
    UnsetVariable,
    Unsubscribe,
)
from fiveways.wire.payload import NULL, Cbor, Json, Payload, Text, Value
from tests.support.hub_helpers import (
    LRPM,
    NQ,
    UMQ,
    hub_with_peers,
    make_hub,
    pattern,
    refusal,
    register_method,
    subscribe,
    success,
    topic,
    welcome,
)

ALICE = Identity("alice", "sesame", "hush", permissions=Permissions(call=("hub.*", "a.*")))
BERTA = Identity("berta", "12345", permissions=Permissions(offer=()))
CARLA = Identity("carla", "", "psst")
KNOWN = (ALICE, BERTA, CARLA)
REMOTE = Credentials(is_loopback=False)


def send_hello(
    hub: Hub, body: Payload = NULL, traits: ProtocolTraits = LRPM, credentials: Credentials = REMOTE
) -> Deliveries:
    """Connect a peer and send its hello."""
    hub.arrive("x", traits, credentials, 0.0)
    return hub.handle("x", Hello(body), 0.0)


def goodbye(text: str = WRONG_LOGIN) -> Deliveries:
    return [Delivery("x", Goodbye(text, denied=True))]


def identity_of(hub: Hub) -> str:
    return hub._sessions["x"].identity


# Anonymous sessions.


@pytest.mark.parametrize(
    ("anonymous", "is_loopback", "is_admitted"),
    [
        ("loopback", True, True),
        ("loopback", False, False),
        ("always", True, True),
        ("always", False, True),
        ("never", True, False),
        ("never", False, False),
    ],
)
def test_anonymous_setting_decides_admission_of_anonymous_peers(
    anonymous: str, is_loopback: bool, is_admitted: bool
) -> None:
    hub = make_hub(anonymous=anonymous)
    deliveries = send_hello(hub, credentials=Credentials(is_loopback))
    assert deliveries == (welcome("x") if is_admitted else goodbye(ANONYMOUS_REFUSED))
    assert hub.stats()["refused_logins"] == (not is_admitted)
    assert hub.deadline() is None


def test_invalid_anonymous_setting_is_rejected() -> None:
    with pytest.raises(ValueError, match="anonymous is one of loopback, always, never, not 'Never'"):
        HubSettings(anonymous="Never")


@pytest.mark.parametrize(
    "body", [Text("anything"), Text("1"), Value({"client": "x"}), Value(17), Json(b'{"$base64":1}')]
)
def test_any_hello_is_accepted_without_configured_tokens(body: Payload) -> None:
    assert send_hello(make_hub(), body, credentials=Credentials()) == welcome("x")


def test_trusted_session_needs_no_identity() -> None:
    hub = make_hub(anonymous="never", anonymous_permissions=Permissions((), (), (), ()), max_sessions=0)
    assert send_hello(hub, credentials=Credentials(is_trusted=True)) == welcome("x")
    register_method(hub, "x", "m")
    hub.reload(HubSettings(anonymous="never"))
    register_method(hub, "x", "n")


def test_welcome_has_session_and_version() -> None:
    hub = make_hub(version="1.2")
    (delivery,) = send_hello(hub, credentials=Credentials())
    assert isinstance(delivery, Delivery)
    assert getattr(delivery.message, "body", None) == Value({"session": "x", "version": "1.2"})


# Tokens.


@pytest.mark.parametrize("traits", [UMQ, LRPM, NQ])
@pytest.mark.parametrize(
    ("body", "name"),
    [
        (Text("sesame"), "alice"),
        (Value("sesame"), "alice"),
        (Json(b'{"token": "sesame"}'), "alice"),
        (Cbor(b"\xa1\x65token\x66sesame"), "alice"),
        (Text("12345"), "berta"),
        (Value({"token": "12345", "identity": "alice"}), "berta"),
    ],
)
def test_token_in_hello_authenticates(traits: ProtocolTraits, body: Payload, name: str) -> None:
    hub = make_hub(identities=KNOWN)
    assert send_hello(hub, body, traits) == welcome("x")
    assert identity_of(hub) == name


def test_bearer_token_of_connection_authenticates() -> None:
    hub = make_hub(identities=KNOWN)
    assert send_hello(hub, credentials=Credentials(bearer="sesame")) == welcome("x")
    assert identity_of(hub) == "alice"
    hub.leave("x", 0.0)
    assert send_hello(hub, Text("12345"), credentials=Credentials(bearer="wrong")) == goodbye()


@pytest.mark.parametrize("is_loopback", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        Text("wrong"),
        Value({"token": "wrong"}),
        Value({"token": 12345}),
        Value({"token": ""}),
        Value("\ud800"),
        Text("sesam"),
    ],
)
def test_wrong_token_is_not_treated_as_anonymous(body: Payload, is_loopback: bool) -> None:
    hub = make_hub(identities=KNOWN)
    assert send_hello(hub, body, UMQ, Credentials(is_loopback)) == goodbye()
    assert hub.handle("x", Hello(Text("sesame")), 0.0) == []
    assert hub.handle("x", Call("c", "hub.ping"), 0.0) == []
    assert hub.leave("x", 0.0) == []


def test_token_is_wrong_without_configured_tokens() -> None:
    assert send_hello(make_hub(), Value({"token": "sesame"}), credentials=Credentials()) == goodbye()
    assert send_hello(make_hub(), credentials=Credentials(bearer="sesame")) == goodbye()


def test_empty_token_does_not_match_identity_without_token() -> None:
    hub = make_hub(identities=(CARLA,), anonymous="never")
    assert send_hello(hub, Value({"token": ""})) == goodbye()


# Tokens in a variable.


def test_unidentified_session_may_send_token_later() -> None:
    hub = make_hub(identities=KNOWN, login_timeout=10.0)
    for body in (NULL, Text(""), Text("{}"), Text("null")):
        assert send_hello(hub, body, UMQ) == welcome("x")
        hub.leave("x", 0.0)
    assert send_hello(hub, traits=UMQ) == welcome("x")
    requests: list[Any] = [
        Call("c", "hub.ping"),
        Publish("c", topic("t")),
        Unsubscribe("c", "s"),
        Call("c", "t", callback=True),
    ]
    for message in requests:
        assert refusal(hub.handle("x", message, 1.0)) == ("x", "c", Reason.DENIED, ANONYMOUS_REFUSED)
    others: list[HubMessage] = [Publish(None, topic("t")), Result("1"), Unsubscribe(None, "s"), Goodbye()]
    assert [hub.handle("x", message, 1.0) for message in others] == [[], [], [], []]
    assert hub.handle("x", SetVariable(None, "colour", Text("red")), 1.0) == []
    assert hub.handle("x", SetVariable(None, "token", Text("sesame")), 2.0) == []
    assert identity_of(hub) == "alice"
    assert hub.handle("x", Call("c", "hub.ping"), 3.0) == success("x", "c", Value("pong"))
    assert hub.expire(20.0) == []


def test_unidentified_session_is_closed_at_login_deadline() -> None:
    hub = make_hub(identities=KNOWN, login_timeout=10.0)
    send_hello(hub, traits=UMQ)
    assert hub.deadline() == 10.0
    assert hub.expire(9.9) == []
    assert hub.expire(10.0) == goodbye(LOGIN_TIMED_OUT)
    assert hub.handle("x", SetVariable("v", "token", Text("sesame")), 11.0) == []
    assert hub.deadline() is None


def test_silent_connection_is_closed_at_login_deadline() -> None:
    hub = make_hub(login_timeout=10.0)
    hub.arrive("x", LRPM, Credentials(), 5.0)
    assert hub.expire(15.0) == goodbye(LOGIN_TIMED_OUT)
    assert hub.stats()["refused_logins"] == 1
    hub.leave("x", 15.0)
    hub.arrive("x", LRPM, Credentials(), 20.0)
    assert hub.leave("x", 21.0) == []
    assert hub.deadline() is None


def test_session_without_token_is_refused_if_challenge_exists_or_no_token_is_configured() -> None:
    assert send_hello(make_hub(identities=KNOWN), traits=LRPM) == goodbye(ANONYMOUS_REFUSED)
    assert send_hello(make_hub(identities=(CARLA,)), traits=UMQ) == goodbye(ANONYMOUS_REFUSED)
    assert send_hello(make_hub(), traits=UMQ) == goodbye(ANONYMOUS_REFUSED)


def test_wrong_token_variable_is_denied() -> None:
    hub = make_hub(identities=KNOWN)
    send_hello(hub, traits=UMQ)
    refused = refusal(hub.handle("x", SetVariable("v", "token", Text("wrong")), 1.0))
    assert refused == ("x", "v", Reason.DENIED, WRONG_LOGIN)
    assert hub.handle("x", SetVariable("v", "token", Value("sesame")), 1.0) == success("x", "v")
    assert hub.handle("x", SetVariable(None, "token", Value(5)), 1.0) == goodbye()
    assert hub.handle("x", Call("c", "hub.ping"), 1.0) == []


def test_session_is_closed_after_too_many_wrong_tokens() -> None:
    hub = make_hub(identities=KNOWN)
    send_hello(hub, credentials=Credentials())
    for _ in range(9):
        assert refusal(hub.handle("x", SetVariable("v", "token", Text("wrong")), 1.0))[2] is Reason.DENIED
    assert hub.handle("x", SetVariable("v", "token", Text("wrong")), 1.0) == goodbye()
    assert hub.stats()["refused_logins"] == 10


def test_anonymous_session_may_authenticate_later() -> None:
    hub = make_hub(identities=KNOWN, anonymous_permissions=Permissions(call=()))
    send_hello(hub, credentials=Credentials())
    assert refusal(hub.handle("x", Call("c", "a.b"), 1.0))[2] is Reason.DENIED
    assert hub.handle("x", SetVariable("v", "token", Text("sesame")), 1.0) == success("x", "v")
    assert refusal(hub.handle("x", Call("c", "a.b"), 1.0))[2] is Reason.NO_SUCH_METHOD
    assert hub.handle("x", UnsetVariable("v", "token"), 1.0) == success("x", "v")


# Limits and draining.


def test_full_hub_refuses_sessions() -> None:
    hub = make_hub(max_sessions=1)
    hub.arrive("first", LRPM, Credentials(), 0.0)
    assert hub.handle("first", Hello(), 0.0) == welcome("first")
    assert send_hello(hub, credentials=Credentials()) == [
        Delivery("x", Goodbye(f"{TOO_MANY_SESSIONS}: the limit of 1 for the whole hub is reached"))
    ]
    hub.leave("x", 0.0)
    hub.leave("first", 0.0)
    assert send_hello(hub, credentials=Credentials()) == welcome("x")


def test_draining_hub_refuses_sessions() -> None:
    hub = make_hub()
    hub.drain(0.0)
    assert send_hello(hub, credentials=Credentials()) == [Delivery("x", Goodbye(HUB_CLOSING))]


# Reload of the settings.


def test_reload_applies_to_existing_sessions() -> None:
    hub = make_hub(identities=KNOWN)
    send_hello(hub, Text("sesame"))
    hub.arrive("guest", LRPM, Credentials(), 0.0)
    hub.handle("guest", Hello(), 0.0)
    assert refusal(hub.handle("x", Call("c", "b.c"), 0.0))[2] is Reason.DENIED
    hub.reload(HubSettings(identities=(Identity("alice", "sesame", permissions=Permissions(call=("b.*",))),)))
    assert refusal(hub.handle("x", Call("c", "b.c"), 0.0))[2] is Reason.NO_SUCH_METHOD
    assert refusal(hub.handle("x", Call("c", "a.c"), 0.0))[2] is Reason.DENIED
    assert refusal(hub.handle("guest", Call("c", "a.c"), 0.0))[2] is Reason.NO_SUCH_METHOD
    hub.reload(HubSettings(anonymous="never"))
    assert refusal(hub.handle("x", Call("c", "b.c"), 0.0))[2] is Reason.DENIED
    assert refusal(hub.handle("guest", Call("c", "a.c"), 0.0))[2] is Reason.DENIED
    hub.reload(HubSettings(anonymous_permissions=Permissions(call=("a.*",))))
    assert refusal(hub.handle("guest", Call("c", "a.c"), 0.0))[2] is Reason.NO_SUCH_METHOD


def test_reload_ends_forbidden_registrations_and_subscriptions() -> None:
    hub = make_hub(identities=(Identity("alice", "sesame"),))
    send_hello(hub, Text("sesame"))
    for method in ("a.b", "c"):
        register_method(hub, "x", method)
        register_method(hub, "x", method, route=True)
    subscribe(hub, "x", pattern("news.*"), "1")
    subscribe(hub, "x", pattern("other"), "2")
    permissions = Permissions(offer=("a.*",), subscribe=("news.*",))
    assert hub.reload(HubSettings(identities=(Identity("alice", "sesame", "", permissions),))) == [
        Delivery("x", TopicClosed("2"))
    ]
    assert (hub.stats()["offers"], hub.stats()["subscriptions"]) == (2, 1)
    assert hub.reload(HubSettings()) == [Delivery("x", TopicClosed("1"))]
    assert (hub.stats()["offers"], hub.stats()["subscriptions"]) == (0, 0)
    assert hub.reload(HubSettings()) == []


def test_reload_does_not_admit_waiting_sessions() -> None:
    hub = make_hub(identities=KNOWN)
    send_hello(hub, traits=UMQ)
    hub.reload(HubSettings(identities=KNOWN))
    assert refusal(hub.handle("x", Call("c", "hub.ping"), 0.0))[2] is Reason.DENIED


def test_secrets_are_not_in_repr() -> None:
    rendered = repr(HubSettings(identities=KNOWN)) + repr(Credentials(bearer="sesame"))
    assert not [secret for secret in ("sesame", "12345", "hush", "psst") if secret in rendered]


def test_connections_are_counted() -> None:
    assert hub_with_peers().stats()["arrived"] == 5


@pytest.mark.parametrize("by_variable", [False, True])
def test_session_keeps_permissions_while_its_token_is_configured(*, by_variable: bool) -> None:
    hub = make_hub(identities=KNOWN)
    send_hello(hub, NULL if by_variable else Text("sesame"), traits=UMQ)
    if by_variable:
        hub.handle("x", SetVariable("v", "token", Text("sesame")), 0.0)
    assert identity_of(hub) == "alice"
    assert b"sesame" not in hub._sessions["x"].credential_digest
    for token, secret, reason in (
        ("sesame", "other", Reason.NO_SUCH_METHOD),
        ("other", "hush", Reason.DENIED),
        ("", "hush", Reason.DENIED),
        ("sesame", "", Reason.NO_SUCH_METHOD),
    ):
        hub.reload(HubSettings(identities=(Identity("alice", token, secret),)))
        assert refusal(hub.handle("x", Call("c", "a.c"), 0.0))[2] is reason


# Requests without a session.


def test_may_call_works_without_session() -> None:
    hub = make_hub(identities=KNOWN, anonymous="loopback", anonymous_permissions=Permissions(call=("hub.ping",)))
    assert hub.admission.may_call(Credentials(False, "sesame"), "a.b", 0.0)
    assert not hub.admission.may_call(Credentials(True, "sesame"), "b.a", 0.0)
    assert hub.admission.may_call(Credentials(True), "hub.ping", 0.0)
    assert not hub.admission.may_call(Credentials(True), "hub.stats", 0.0)
    assert not hub.admission.may_call(REMOTE, "hub.ping", 0.0)
    assert hub.stats()["refused_logins"] == 0


@pytest.mark.parametrize("identities", [KNOWN, ()])
def test_may_call_with_unknown_token_is_refused_login(identities: tuple[Identity, ...]) -> None:
    hub = make_hub(identities=identities, anonymous="always")
    result: list[object] = []
    hub.admission.on_refused = result.append
    with pytest.raises(Refusal) as refused:
        hub.admission.may_call(Credentials(True, "wrong"), "hub.ping", 0.0)
    assert (refused.value.reason, refused.value.text) == (Reason.DENIED, WRONG_LOGIN)
    assert hub.stats()["refused_logins"] == 1
    assert result == [None]


# Sessions that a previous hub process authenticated.


def hub_with_restored_session(identity: str, **settings: Any) -> Hub:  # noqa: ANN401  fields of HubSettings
    """Return a hub with one session restored from its store."""
    hub = make_hub(**settings)
    hub.restore_session("x", NQ, identity, 0.0)
    return hub


def may_call(hub: Hub, method: str = "a.c") -> bool:
    """Return whether the session is authorized; an unknown method then gives another refusal."""
    return refusal(hub.handle("x", Call("c", method), 0.0))[2] is Reason.NO_SUCH_METHOD


@pytest.mark.parametrize(("anonymous", "may"), [("always", True), ("loopback", True), ("never", False)], ids=str)
def test_restored_anonymous_session_has_permissions_only_while_anonymous_peers_are_accepted(
    anonymous: str, *, may: bool
) -> None:
    hub = hub_with_restored_session("", identities=KNOWN, anonymous=anonymous)
    assert may_call(hub) is may
    hub.reload(HubSettings(identities=KNOWN, anonymous="never"))
    assert not may_call(hub)


@pytest.mark.parametrize(
    ("anonymous", "is_loopback", "name"),
    [("always", False, ""), ("loopback", True, ""), ("loopback", False, None), ("never", True, None)],
)
def test_identify_returns_none_for_anonymous_credentials_that_are_not_accepted(
    anonymous: str, *, is_loopback: bool, name: str | None
) -> None:
    assert make_hub(anonymous=anonymous).admission.identify(Credentials(is_loopback)) == name


def test_restored_identity_keeps_its_permissions_after_a_reload_of_the_same_settings() -> None:
    hub = hub_with_restored_session("alice", identities=KNOWN)
    for _ in range(2):
        assert may_call(hub)
        hub.reload(HubSettings(identities=KNOWN))
    hub.resume("x", Credentials(bearer="sesame"))
    hub.reload(HubSettings(identities=KNOWN))
    assert may_call(hub)
    assert not may_call(hub, "b.c")
    hub.reload(HubSettings())
    assert not may_call(hub)


def test_session_that_resumes_with_a_rotated_token_has_its_permissions_again() -> None:
    rotated = HubSettings(identities=(Identity("alice", "simsalabim", permissions=ALICE.permissions),))
    hub = make_hub(identities=KNOWN)
    send_hello(hub, traits=NQ, credentials=Credentials(bearer="sesame"))
    assert may_call(hub)
    hub.reload(rotated)
    hub.resume("x", Credentials(bearer="sesame"))
    assert not may_call(hub)
    hub.resume("x", Credentials(bearer="simsalabim"))
    assert may_call(hub)
    hub.reload(HubSettings(identities=KNOWN))
    assert not may_call(hub)


def test_restored_identity_that_resumes_without_token_has_no_permissions() -> None:
    hub = hub_with_restored_session("alice", identities=KNOWN)
    hub.resume("x", Credentials(remote="127.0.0.1:4711"))
    assert not may_call(hub)
    assert hub.handle("x", SetVariable("v", "token", Text("sesame")), 0.0) == success("x", "v")
    assert may_call(hub)
    hub.resume("x", Credentials(remote="127.0.0.1:4712"))
    assert may_call(hub)


def test_anonymous_session_that_resumes_from_another_machine_loses_permissions_for_loopback() -> None:
    hub = make_hub()
    send_hello(hub, traits=NQ, credentials=Credentials())
    hub.resume("x", REMOTE)
    assert not may_call(hub)
    hub.resume("x", Credentials())
    assert may_call(hub)
