"""Built-in methods of the hub."""

from random import Random

import pytest

from fiveways.errors import Reason
from fiveways.hub.builtin_methods import BUILT_IN_DOCS
from fiveways.hub.core import Hub
from fiveways.hub.session import public_name
from fiveways.hub.settings import Identity, Permissions
from fiveways.hub.traits import Credentials
from fiveways.model.messages import Call, Part, Result, SetVariable
from fiveways.wire.payload import NULL, Json, Payload, Text, Value
from tests.support.hub_helpers import LRPM, hub_with_peers, join, make_hub, only_message, refusal, success


def call_hub(hub: Hub, method: str, body: Payload = NULL, now: float = 0.0) -> Payload:
    result = only_message(hub.handle("ann", Call("c", method, body), now), Result).body
    assert isinstance(result, Payload)
    return result


def test_ping_and_echo_respond() -> None:
    hub = hub_with_peers()
    assert call_hub(hub, "hub.ping") == Value("pong")
    assert call_hub(hub, "hub.ping", Text("")) == Value("pong")
    for body in (NULL, Text("1.10"), Json(b'{"a" : 1}'), Json(b'{"$base64":5}')):
        assert call_hub(hub, "hub.echo", body) is body


def test_time_is_unix_time() -> None:
    hub = Hub(Random(7), epoch=1_700_000_000.0)
    join(hub, "ann")
    assert call_hub(hub, "hub.time", now=12.5) == Value(1_700_000_012.5)


def test_peers_see_public_names_instead_of_ids() -> None:
    hub = hub_with_peers()
    hub.handle("ann", SetVariable("s", "colour", Value("red")), 0.0)
    assert public_name("ann") != "ann"
    assert call_hub(hub, "hub.get", Value({"name": "colour", "peer": public_name("ann")})) == Value("red")


def test_stats_are_representable_as_json() -> None:
    hub = hub_with_peers()
    hub.handle("ann", Call("c", "nothing"), 0.0)
    result = call_hub(hub, "hub.stats")
    assert b'"failures":{"no_such_method":1}' in result.json()


def test_unknown_peer_argument_is_refused() -> None:
    hub = hub_with_peers()
    hub.arrive("late", LRPM, Credentials(), 0.0)
    for peer in ("nobody", "late"):
        refused = refusal(hub.handle("ann", Call("c", "hub.get", Value({"name": "x", "peer": peer})), 0.0))
        assert refused == ("ann", "c", Reason.BAD_ARGUMENTS, f"there is no peer {peer}")


@pytest.mark.parametrize("method", ["hub.ping", "hub.push"])
def test_built_in_methods_refuse_streams(method: str) -> None:
    hub = hub_with_peers()
    refused = refusal(hub.handle("ann", Call("c", method, more=True), 0.0))
    assert refused == ("ann", "c", Reason.BAD_ARGUMENTS, f"{method} takes no stream")
    assert hub.handle("ann", Part("c", NULL, last=True), 0.0) == []


@pytest.mark.parametrize("method", ["hub.push", "hub.echo"])
def test_built_in_calls_with_attachments_are_refused(method: str) -> None:
    refused = refusal(hub_with_peers().handle("ann", Call("c", method, Value(["jobs", 1]), attachments=("0",)), 0.0))
    assert refused == ("ann", "c", Reason.BAD_ARGUMENTS, f"{method} takes no attachments")


def test_methods_with_own_messages_are_not_callable() -> None:
    hub = hub_with_peers()
    refused = refusal(hub.handle("ann", Call("c", "hub.publish"), 0.0))
    assert refused[2] is Reason.NO_SUCH_METHOD


def test_all_built_in_methods_have_documentation() -> None:
    calls = (
        "ping",
        "echo",
        "time",
        "callback",
        "get",
        "push",
        "pull",
        "queues",
        "dead",
        "redrive",
        "drop",
        "owed",
        "purge",
        "peers",
        "stats",
        "traffic",
        "rights",
        "clock",
        "results",
    )
    assert {name for name in BUILT_IN_DOCS if name in hub_with_peers().built_ins} == {f"hub.{name}" for name in calls}
    assert all(BUILT_IN_DOCS.values())


def test_built_in_methods_are_answered_while_hub_drains() -> None:
    hub = hub_with_peers()
    hub.drain(0.0)
    assert hub.handle("ann", Call("c", "hub.ping"), 0.0) == success("ann", "c", Value("pong"))


def test_rights_returns_identity_and_permissions() -> None:
    permissions = Permissions(call=("math.*", "hub.stats"), offer=(), publish=("news.*",), subscribe=("*",))
    hub = make_hub(
        identities=(Identity("alice", token="sesame", permissions=permissions),),  # noqa: S106  a token of this test only
        anonymous_permissions=Permissions(call=()),
    )
    join(hub, "ann")
    others = {"publish": ["*"], "subscribe": ["*"], "push": ["*"], "pull": ["*"], "close": []}
    assert call_hub(hub, "hub.rights") == Value({"identity": "", "call": [], "offer": ["*"], **others})
    hub.handle("ann", SetVariable("s", "token", Value("sesame")), 0.0)
    changed = {"identity": "alice", "call": ["math.*", "hub.stats"], "offer": [], "publish": ["news.*"]}
    assert call_hub(hub, "hub.rights") == Value(others | changed)


def test_results_come_from_the_configured_source() -> None:
    hub = hub_with_peers()
    assert call_hub(hub, "hub.results") == Value(None)
    hub.built_ins.pipeline_results = lambda: {"rows": 5}
    assert call_hub(hub, "hub.results") == Value({"rows": 5})


def test_results_require_permission() -> None:
    hub = make_hub(anonymous_permissions=Permissions(call=("math.*",)))
    join(hub, "ann")
    refused = refusal(hub.handle("ann", Call("c", "hub.results"), 0.0))
    assert refused == ("ann", "c", Reason.DENIED, "you may not call hub.results")
