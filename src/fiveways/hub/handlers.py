"""What is done with each word of a peer, in each stage of its session."""

from collections.abc import Mapping

from fiveways.hub.admission import Admission
from fiveways.hub.attachments import Attachments
from fiveways.hub.delivery import Deliveries
from fiveways.hub.discovery import Discovery
from fiveways.hub.publishing import Publishing
from fiveways.hub.router import Router
from fiveways.hub.session import Handler, Session, Stage
from fiveways.hub.variables import Variables
from fiveways.model import messages as words
from fiveways.model.messages import HubMessage


def build_handlers(
    gate: Admission,
    variables: Variables,
    router: Router,
    publishing: Publishing,
    discovery: Discovery,
    attachments: Attachments,
    own: Mapping[type[HubMessage], Handler],
) -> dict[Stage, dict[type[HubMessage], Handler]]:
    """Return the tables; `own` is what the core does itself for those who were let in."""
    parting: dict[type[HubMessage], Handler] = {words.Goodbye: _ignore}
    door: dict[type[HubMessage], Handler] = {words.Hello: gate.handle_hello, words.Proof: gate.handle_proof}
    variable: dict[type[HubMessage], Handler] = {
        words.SetVariable: variables.handle_set,
        words.UnsetVariable: variables.handle_unset,
    }
    everything: dict[type[HubMessage], Handler] = {
        words.Call: router.call,
        words.Part: router.forward_part,
        words.Cancel: router.cancel,
        words.Result: router.forward_result,
        words.Failure: router.forward_failure,
        words.Progress: router.forward_progress,
        words.Stray: router.count_stray,
        words.Publish: publishing.publish,
        words.Subscribe: publishing.subscribe,
        words.Unsubscribe: publishing.unsubscribe,
        words.CloseTopic: publishing.close_topic,
        words.Discover: discovery.discover,
        words.Description: discovery.forward_description,
        words.Attachment: attachments.forward,
        words.Hurry: attachments.handle_hurry,
        **own,
    }
    return {
        Stage.CONNECTED: parting | door,
        Stage.UNIDENTIFIED: parting | variable,
        Stage.OPEN: parting | variable | everything,
        Stage.CLOSED: {},
    }


def _ignore(_session: Session, _word: HubMessage, _now: float) -> Deliveries:
    return []
