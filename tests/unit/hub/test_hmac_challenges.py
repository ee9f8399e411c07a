"""Authentication by HMAC challenges."""

import hmac

import pytest

from fiveways.errors import Reason
from fiveways.hub.admission import ANONYMOUS_REFUSED, BAD_PROOF, LOGIN_TIMED_OUT, compute_mac
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries
from fiveways.hub.settings import HubSettings, Identity
from fiveways.hub.traits import Credentials
from fiveways.model.messages import Call, Challenge, Proof
from fiveways.wire.payload import Json, Value
from tests.support.hub_helpers import LRPM, UMQ, make_hub, only_message, refusal, welcome
from tests.unit.hub.test_admission import KNOWN, REMOTE, goodbye, identity_of, send_hello


def challenge(hub: Hub, name: str = "alice") -> str:
    message = only_message(send_hello(hub, Value({"identity": name})), Challenge)
    assert isinstance(message, Challenge)
    body = message.body.value()
    assert isinstance(body, dict)
    assert (set(body), body["method"]) == ({"nonce", "method"}, "hmac-sha256")
    return str(body["nonce"])


def prove(hub: Hub, mac: object) -> Deliveries:
    return hub.handle("x", Proof(Value({"mac": mac})), 1.0)


@pytest.mark.parametrize(("name", "secret"), [("alice", "hush"), ("carla", "psst")])
def test_correct_proof_admits_identity(name: str, secret: str) -> None:
    hub = make_hub(identities=KNOWN)
    nonce = challenge(hub, name)
    assert hub.deadline() == 10.0
    assert prove(hub, hmac.new(secret.encode(), nonce.encode(), "sha256").hexdigest()) == welcome("x")
    assert (identity_of(hub), hub.deadline()) == (name, None)


def test_proof_in_capitals_is_accepted() -> None:
    hub = make_hub(identities=KNOWN)
    assert prove(hub, compute_mac("hush", challenge(hub)).upper()) == welcome("x")


@pytest.mark.parametrize("mac", ["", "0" * 64, 5, None, "\ud800", compute_mac("hush", "")])
def test_wrong_proof_is_refused(mac: object) -> None:
    hub = make_hub(identities=KNOWN)
    nonce = challenge(hub)
    assert prove(hub, mac) == goodbye(BAD_PROOF)
    assert prove(hub, compute_mac("hush", nonce)) == []


def test_malformed_proof_is_refused() -> None:
    hub = make_hub(identities=KNOWN)
    challenge(hub)
    assert hub.handle("x", Proof(Json(b'{"$base64":1}')), 1.0) == goodbye(BAD_PROOF)
    hub.leave("x", 1.0)
    hub.arrive("x", LRPM, REMOTE, 0.0)
    assert hub.handle("x", Proof(Value({"mac": compute_mac("", "")})), 0.0) == goodbye(BAD_PROOF)


@pytest.mark.parametrize("name", ["mallory", "berta", ""])
def test_challenge_does_not_reveal_known_identities(name: str) -> None:
    hub = make_hub(identities=KNOWN)
    nonce = challenge(hub, name)
    assert len(nonce) == len(challenge(make_hub(identities=KNOWN)))
    assert prove(hub, compute_mac("", nonce)) == goodbye(BAD_PROOF)


def test_each_challenge_has_new_nonce() -> None:
    hub = make_hub(identities=KNOWN)
    nonces = set()
    for _ in range(100):
        nonces.add(challenge(hub))
        hub.leave("x", 0.0)
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {64}


def test_unanswered_challenge_expires() -> None:
    hub = make_hub(identities=KNOWN)
    nonce = challenge(hub)
    assert hub.expire(10.0) == goodbye(LOGIN_TIMED_OUT)
    assert prove(hub, compute_mac("hush", nonce)) == []


def test_identity_without_challenge_is_ignored() -> None:
    assert send_hello(make_hub(identities=KNOWN), Value({"identity": "alice"}), UMQ) == goodbye(ANONYMOUS_REFUSED)
    assert send_hello(make_hub(identities=KNOWN), Value({"identity": "alice"}), UMQ, Credentials()) == welcome("x")
    assert send_hello(make_hub(identities=KNOWN), Value({"identity": 5}), LRPM, Credentials()) == welcome("x")


def test_identity_removed_during_challenge_is_refused() -> None:
    hub = make_hub(identities=KNOWN)
    nonce = challenge(hub)
    hub.reload(HubSettings())
    assert prove(hub, compute_mac("hush", nonce)) == goodbye(BAD_PROOF)


def test_session_keeps_permissions_while_its_secret_is_configured() -> None:
    hub = make_hub(identities=KNOWN)
    prove(hub, compute_mac("hush", challenge(hub)))
    for token, secret, reason in (("other", "hush", Reason.NO_SUCH_METHOD), ("sesame", "other", Reason.DENIED)):
        hub.reload(HubSettings(identities=(Identity("alice", token, secret),)))
        assert refusal(hub.handle("x", Call("c", "a.c"), 0.0))[2] is reason
