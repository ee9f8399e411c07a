"""Session slots by owner."""

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Delivery
from fiveways.hub.rate_limit import Allowances
from fiveways.hub.session import Session
from fiveways.hub.session_limits import TOO_MANY_SESSIONS
from fiveways.hub.settings import HubSettings, Identity
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Failure, Goodbye, Hello, SetVariable, Welcome
from fiveways.wire.payload import Text
from tests.support.hub_helpers import LRPM, UMQ, make_hub

NQ = ProtocolTraits("nq", names.NQ, topics.NQ, is_durable=True)
ADA = Identity("ada", token="of-ada")  # noqa: S106


def connect(hub: Hub, peer: str, traits: ProtocolTraits = UMQ, remote: str = "10.0.0.1:5", bearer: str = "") -> str:
    """Connect a peer and send its hello; return the reason if the hub closes the session."""
    hub.arrive(peer, traits, Credentials(True, bearer, remote=remote), 0.0)
    (delivery,) = hub.handle(peer, Hello(), 0.0)
    assert isinstance(delivery, Delivery)
    if isinstance(delivery.message, Goodbye):
        return delivery.message.text.removeprefix(f"{TOO_MANY_SESSIONS}: ")
    assert isinstance(delivery.message, Welcome)
    return ""


def counts(hub: Hub) -> tuple[object, object, object]:
    stats = hub.stats()
    return stats["connected_sessions"], stats["resumable_sessions"], stats["refused_sessions"]


def test_one_address_uses_its_share_and_others_the_rest() -> None:
    hub = make_hub(max_sessions=4)
    assert [connect(hub, peer) for peer in "ab"] == ["", ""]
    assert connect(hub, "c") == "the share of 2 for address 10.0.0.1 is used up"
    assert connect(hub, "d", LRPM, "10.0.0.2:7") == ""
    hub.leave("a", 1.0)
    hub.leave("c", 1.0)  # it was refused, and had no slot
    assert counts(hub) == (2, 0, 1)
    assert connect(hub, "e") == ""


def test_slots_are_reserved_for_identities() -> None:
    hub = make_hub(max_sessions=4, identities=(ADA,))
    assert [connect(hub, str(number), remote=f"10.0.0.{number}:1") for number in range(3)] == ["", "", ""]
    assert connect(hub, "3", remote="10.0.0.3:1") == "the share of 3 for all anonymous peers is used up"
    assert connect(hub, "4", bearer="of-ada") == ""


def test_session_that_sends_token_takes_slot_of_its_identity() -> None:
    hub = make_hub(max_sessions=2, identities=(ADA,))
    assert connect(hub, "a", bearer="of-ada") == ""
    assert connect(hub, "b") == ""
    (delivery,) = hub.handle("b", SetVariable("1", "token", Text("of-ada")), 0.0)
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, Failure)
    assert (delivery.message.reason, hub.identity_of("b")) == (Reason.OVERLOADED, "")
    hub.leave("a", 0.0)
    hub.handle("b", SetVariable("2", "token", Text("of-ada")), 0.0)
    assert (hub.identity_of("b"), counts(hub)) == ("ada", (1, 0, 1))
    assert connect(hub, "c") == ""  # the slot of its address is free again
    for peer in "bc":
        hub.leave(peer, 0.0)
    assert counts(hub) == (0, 0, 1)


def test_resumable_session_uses_connection_slot_only_while_connected() -> None:
    hub = make_hub(max_sessions=2, max_resumable=8)
    assert [connect(hub, peer, NQ) for peer in "abc"] == ["", "", ""]
    assert counts(hub) == (0, 3, 0)
    assert (
        hub.admission.session_limits.take_connection_slot("a"),
        hub.admission.session_limits.take_connection_slot("a"),
    ) == ("", "")
    assert (
        hub.admission.session_limits.take_connection_slot("b")
        == f"{TOO_MANY_SESSIONS}: the share of 1 for address 10.0.0.1 is used up"
    )
    hub.admission.session_limits.release_connection_slot("a")
    assert hub.admission.session_limits.take_connection_slot("b") == ""
    assert counts(hub) == (1, 3, 1)
    for peer in "abc":
        hub.leave(peer, 0.0)
    assert counts(hub) == (0, 0, 1)


def test_restored_session_ignores_the_limit() -> None:
    hub = make_hub(max_resumable=2)
    for peer in "abc":
        hub.restore_session(peer, NQ, "", 0.0)
    assert counts(hub) == (0, 3, 0)
    assert connect(hub, "d", NQ) == "the limit of 2 for the whole hub is reached"


def test_new_limits_apply_after_reload() -> None:
    hub = make_hub(max_sessions=4)
    assert connect(hub, "a") == ""
    hub.reload(HubSettings(max_sessions=2))
    assert connect(hub, "b") == "the share of 1 for address 10.0.0.1 is used up"


def test_allowance_passes_to_next_session_of_the_owner() -> None:
    allowances = Allowances()

    def session(remote: str) -> Session:
        hub = make_hub(rate=5.0)
        assert connect(hub, "a", NQ, remote) == ""
        result = hub.find_session("a")
        assert result is not None
        return result

    first = session("10.0.0.1:5")
    allowances.restore(first)
    assert first.allowance == 5.0
    first.allowance, first.refilled_at = 1.5, 3.0
    allowances.save(first)
    second, other = session("10.0.0.1:6"), session("10.0.0.2:6")
    for each in (second, other):
        allowances.restore(each)
    assert (second.allowance, second.refilled_at, other.allowance) == (1.5, 3.0, 5.0)
