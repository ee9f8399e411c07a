"""Handlers of messages by session stage."""

from collections.abc import Mapping

from fiveways.hub.admission import Admission
from fiveways.hub.attachments import Attachments
from fiveways.hub.delivery import Deliveries
from fiveways.hub.discovery import Discovery
from fiveways.hub.publishing import Publishing
from fiveways.hub.router import Router
from fiveways.hub.session import Handler, Session, Stage
from fiveways.hub.variables import Variables
from fiveways.model import messages
from fiveways.model.messages import HubMessage


def build_handlers(
    admission: Admission,
    variables: Variables,
    router: Router,
    publishing: Publishing,
    discovery: Discovery,
    attachments: Attachments,
    core_handlers: Mapping[type[HubMessage], Handler],
) -> dict[Stage, dict[type[HubMessage], Handler]]:
    """Return the handler tables; `core_handlers` are further handlers for open sessions."""
    goodbye: dict[type[HubMessage], Handler] = {messages.Goodbye: _ignore}
    login: dict[type[HubMessage], Handler] = {
        messages.Hello: admission.handle_hello,
        messages.Proof: admission.handle_proof,
    }
    variable: dict[type[HubMessage], Handler] = {
        messages.SetVariable: variables.handle_set,
        messages.UnsetVariable: variables.handle_unset,
    }
    requests: dict[type[HubMessage], Handler] = {
        messages.Call: router.call,
        messages.Part: router.forward_part,
        messages.Cancel: router.cancel,
        messages.Result: router.forward_result,
        messages.Failure: router.forward_failure,
        messages.Progress: router.forward_progress,
        messages.Stray: router.count_stray,
        messages.Publish: publishing.publish,
        messages.Subscribe: publishing.subscribe,
        messages.Unsubscribe: publishing.unsubscribe,
        messages.CloseTopic: publishing.close_topic,
        messages.Discover: discovery.discover,
        messages.Description: discovery.forward_description,
        messages.Attachment: attachments.forward,
        messages.Hurry: attachments.handle_hurry,
        **core_handlers,
    }
    return {
        Stage.CONNECTED: goodbye | login,
        Stage.UNIDENTIFIED: goodbye | variable,
        Stage.OPEN: goodbye | variable | requests,
        Stage.CLOSED: {},
    }


def _ignore(_session: Session, _message: HubMessage, _now: float) -> Deliveries:
    return []
