"""Who can prove to know a secret."""

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
from tests.support.hub_helpers import LRPM, UMQ, make, only, refusal, welcome
from tests.unit.hub.test_admission import KNOWN, REMOTE, away, greet, identity


def challenge(hub: Hub, name: str = "alice") -> str:
    word = only(greet(hub, Value({"identity": name})), Challenge)
    assert isinstance(word, Challenge)
    body = word.body.value()
    assert isinstance(body, dict)
    assert (set(body), body["method"]) == ({"nonce", "method"}, "hmac-sha256")
    return str(body["nonce"])


def prove(hub: Hub, mac: object) -> Deliveries:
    return hub.handle("x", Proof(Value({"mac": mac})), 1.0)


@pytest.mark.parametrize(("name", "secret"), [("alice", "hush"), ("carla", "psst")])
def test_a_proof(name: str, secret: str) -> None:
    hub = make(identities=KNOWN)
    nonce = challenge(hub, name)
    assert hub.deadline() == 10.0
    assert prove(hub, hmac.new(secret.encode(), nonce.encode(), "sha256").hexdigest()) == welcome("x")
    assert (identity(hub), hub.deadline()) == (name, None)


def test_a_proof_may_be_written_in_capitals() -> None:
    hub = make(identities=KNOWN)
    assert prove(hub, compute_mac("hush", challenge(hub)).upper()) == welcome("x")


@pytest.mark.parametrize("mac", ["", "0" * 64, 5, None, "\ud800", compute_mac("hush", "")])
def test_a_wrong_proof(mac: object) -> None:
    hub = make(identities=KNOWN)
    nonce = challenge(hub)
    assert prove(hub, mac) == away(BAD_PROOF)
    assert prove(hub, compute_mac("hush", nonce)) == []


def test_a_proof_that_is_none_at_all() -> None:
    hub = make(identities=KNOWN)
    challenge(hub)
    assert hub.handle("x", Proof(Json(b'{"$base64":1}')), 1.0) == away(BAD_PROOF)
    hub.leave("x", 1.0)
    hub.arrive("x", LRPM, REMOTE, 0.0)
    assert hub.handle("x", Proof(Value({"mac": compute_mac("", "")})), 0.0) == away(BAD_PROOF)


@pytest.mark.parametrize("name", ["mallory", "berta", ""])
def test_nobody_learns_who_is_known(name: str) -> None:
    hub = make(identities=KNOWN)
    nonce = challenge(hub, name)
    assert len(nonce) == len(challenge(make(identities=KNOWN)))
    assert prove(hub, compute_mac("", nonce)) == away(BAD_PROOF)


def test_every_challenge_is_another() -> None:
    hub = make(identities=KNOWN)
    nonces = set()
    for _ in range(100):
        nonces.add(challenge(hub))
        hub.leave("x", 0.0)
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {64}


def test_a_challenge_has_a_deadline() -> None:
    hub = make(identities=KNOWN)
    nonce = challenge(hub)
    assert hub.expire(10.0) == away(LOGIN_TIMED_OUT)
    assert prove(hub, compute_mac("hush", nonce)) == []


def test_where_there_are_no_challenges_an_identity_alone_is_nothing() -> None:
    assert greet(make(identities=KNOWN), Value({"identity": "alice"}), UMQ) == away(ANONYMOUS_REFUSED)
    assert greet(make(identities=KNOWN), Value({"identity": "alice"}), UMQ, Credentials()) == welcome("x")
    assert greet(make(identities=KNOWN), Value({"identity": 5}), LRPM, Credentials()) == welcome("x")


def test_an_identity_may_vanish_while_it_is_proved() -> None:
    hub = make(identities=KNOWN)
    nonce = challenge(hub)
    hub.reload(HubSettings())
    assert prove(hub, compute_mac("hush", nonce)) == away(BAD_PROOF)


def test_who_proved_a_secret_keeps_its_rights_only_while_that_holds() -> None:
    hub = make(identities=KNOWN)
    prove(hub, compute_mac("hush", challenge(hub)))
    for token, secret, reason in (("other", "hush", Reason.NO_SUCH_METHOD), ("sesame", "other", Reason.DENIED)):
        hub.reload(HubSettings(identities=(Identity("alice", token, secret),)))
        assert refusal(hub.handle("x", Call("c", "a.c"), 0.0))[2] is reason
