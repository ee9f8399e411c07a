"""Waits of network addresses after failed logins."""

import pytest

from fiveways.errors import Reason
from fiveways.hub import failed_logins
from fiveways.hub.admission import TOO_MANY_FAILED_LOGINS, WRONG_LOGIN
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.failed_logins import FailedLogins
from fiveways.hub.refusal import Refusal
from fiveways.hub.settings import HubSettings, Identity
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model.messages import Goodbye, Hello, Proof, SetVariable
from fiveways.wire.payload import NULL, Payload, Text, Value
from tests.support.hub_helpers import LRPM, UMQ, make_hub, refusal, welcome

ADDRESS_1 = Credentials(remote="192.0.2.1:4711")
ADDRESS_2 = Credentials(remote="192.0.2.2:4711")
ALICE = Identity("alice", "sesame", "hush")


def limits(max_failures: int = 3, max_ban: float = 10.0) -> FailedLogins:
    failed = FailedLogins()
    failed.configure(HubSettings(max_failures=max_failures, max_ban=max_ban))
    return failed


# The table.


def test_waits_double_up_to_maximum() -> None:
    failed, waits = limits(), []
    for _ in range(8):
        failed.count(ADDRESS_1, 5.0)
        waits.append(failed.remaining_wait(ADDRESS_1, 5.0))
    assert waits == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert failed.remaining_wait(ADDRESS_1, 14.0) == 1.0
    assert failed.remaining_wait(ADDRESS_1, 15.0) == failed.remaining_wait(ADDRESS_2, 5.0) == 0.0


def test_failures_count_by_address_without_port_preferring_proxied_client() -> None:
    failed = limits(max_failures=1)
    failed.count(Credentials(remote="[2001:db8::1]:1"), 0.0)
    assert failed.remaining_wait(Credentials(remote="[2001:db8::2]:2"), 0.0)
    assert not failed.remaining_wait(Credentials(remote="[2001:db8:0:1::2]:2"), 0.0)
    failed.count(Credentials(remote="127.0.0.1:1", proxied_address="[192.0.2.9]:0"), 0.0)
    assert not failed.remaining_wait(Credentials(remote="127.0.0.1:1"), 0.0)
    assert failed.remaining_wait(Credentials(remote="127.0.0.1:2", proxied_address="[192.0.2.9]:0"), 0.0)


def test_failures_are_forgotten_after_a_login_and_after_a_quarter_of_an_hour() -> None:
    failed = limits()
    for _ in range(5):
        failed.count(ADDRESS_1, 0.0)
    failed.forget(ADDRESS_1)
    assert failed.remaining_wait(ADDRESS_1, 0.0) == 0.0
    for _ in range(5):
        failed.count(ADDRESS_1, 0.0)
    failed.count(ADDRESS_1, 1000.0)
    assert failed.remaining_wait(ADDRESS_1, 1000.0) == 0.0


def test_remembered_addresses_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "_MAX_ADDRESSES", 2)
    failed = limits(max_failures=1)
    for number in (1, 2, 1, 3):
        failed.count(Credentials(remote=f"192.0.2.{number}:1"), 0.0)
    assert [failed.remaining_wait(Credentials(remote=f"192.0.2.{number}:1"), 0.0) for number in (1, 2, 3)] == [
        2.0,
        0.0,
        1.0,
    ]


def test_no_failures_are_too_many_if_the_setting_is_zero() -> None:
    failed = limits(max_failures=0)
    for _ in range(100):
        failed.count(ADDRESS_1, 0.0)
    assert failed.remaining_wait(ADDRESS_1, 0.0) == 0.0


# Logins.


def send_hello(
    hub: Hub,
    body: Payload = NULL,
    now: float = 0.0,
    credentials: Credentials = ADDRESS_1,
    traits: ProtocolTraits = LRPM,
) -> Deliveries:
    hub.leave("x", now)
    hub.arrive("x", traits, credentials, now)
    return hub.handle("x", Hello(body), now)


def goodbye(text: str, *, denied: bool = True) -> Deliveries:
    return [Delivery("x", Goodbye(text, denied=denied))]


def ban_goodbye(seconds: int) -> Deliveries:
    return goodbye(TOO_MANY_FAILED_LOGINS.format(seconds), denied=False)


def test_token_is_not_checked_while_its_address_has_to_wait() -> None:
    hub = make_hub(identities=(ALICE,), max_failures=3)
    for _ in range(3):
        assert send_hello(hub, Text("wrong")) == goodbye(WRONG_LOGIN)
    assert send_hello(hub, Text("sesame")) == ban_goodbye(1)
    assert send_hello(hub, credentials=Credentials(bearer="sesame", remote=ADDRESS_1.remote)) == ban_goodbye(1)
    assert send_hello(hub, Text("sesame"), credentials=ADDRESS_2) == welcome("x")
    assert send_hello(hub, Text("sesame"), now=1.0) == welcome("x")
    assert send_hello(hub, Text("wrong"), now=1.0) == goodbye(WRONG_LOGIN)
    assert hub.stats()["refused_logins"] == 6


def test_anonymous_peers_of_an_address_that_has_to_wait_are_accepted() -> None:
    hub = make_hub(identities=(ALICE,), max_failures=1, anonymous="always")
    assert send_hello(hub, Text("wrong")) == goodbye(WRONG_LOGIN)
    assert send_hello(hub) == welcome("x")


def test_login_without_token_is_not_a_failed_login() -> None:
    hub = make_hub(identities=(ALICE,), max_failures=1, anonymous="never")
    for _ in range(3):
        send_hello(hub)
    assert send_hello(hub, Text("sesame")) == welcome("x")


def test_wrong_proof_is_a_failed_login() -> None:
    hub = make_hub(identities=(ALICE,), max_failures=2)
    for _ in range(2):
        send_hello(hub, Value({"identity": "alice"}))
        hub.handle("x", Proof(Value({"mac": "0"})), 0.0)
    assert send_hello(hub, Value({"identity": "alice"})) == ban_goodbye(1)
    send_hello(hub, Value({"identity": "alice"}), now=1.0)
    hub.arrive("y", LRPM, ADDRESS_1, 1.0)
    hub.handle("y", Hello(Text("wrong")), 1.0)
    assert hub.handle("x", Proof(Value({"mac": "0"})), 1.0) == ban_goodbye(2)


def test_wrong_token_variable_is_a_failed_login() -> None:
    hub = make_hub(identities=(ALICE,), max_failures=2)
    send_hello(hub, traits=UMQ)
    for _ in range(2):
        assert refusal(hub.handle("x", SetVariable("v", "token", Text("wrong")), 0.0))[2] is Reason.DENIED
    refused = refusal(hub.handle("x", SetVariable("v", "token", Text("sesame")), 0.0))
    assert refused == ("x", "v", Reason.OVERLOADED, TOO_MANY_FAILED_LOGINS.format(1))
    assert hub.handle("x", SetVariable(None, "token", Text("sesame")), 0.0) == ban_goodbye(1)
    send_hello(hub, traits=UMQ, now=1.0)
    assert hub.handle("x", SetVariable(None, "token", Text("sesame")), 1.0) == []


def test_wrong_token_without_session_is_a_failed_login() -> None:
    hub = make_hub(identities=(ALICE,), max_failures=1)
    credentials = Credentials(bearer="wrong", remote=ADDRESS_1.remote)
    for reason, wait in ((Reason.DENIED, None), (Reason.OVERLOADED, 1)):
        with pytest.raises(Refusal) as refused:
            hub.admission.may_call(credentials, "hub.ping", 0.0)
        assert (refused.value.reason, refused.value.retry_after) == (reason, wait)
