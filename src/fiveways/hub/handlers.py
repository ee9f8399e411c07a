"""What is done with each word of a peer, in each stage of its session."""

from collections.abc import Mapping

from fiveways.hub.attachments import Attachments
from fiveways.hub.delivery import Deliveries
from fiveways.hub.discovery import Discovery
from fiveways.hub.gate import Gate
from fiveways.hub.publishing import Publishing
from fiveways.hub.router import Router
from fiveways.hub.session import Handler, Session, Stage
from fiveways.hub.variables import Variables
from fiveways.model import messages as words
from fiveways.model.messages import Word


def handlers(
    gate: Gate,
    variables: Variables,
    router: Router,
    publishing: Publishing,
    discovery: Discovery,
    attachments: Attachments,
    own: Mapping[type[Word], Handler],
) -> dict[Stage, dict[type[Word], Handler]]:
    """Return the tables; `own` is what the core does itself for those who were let in."""
    parting: dict[type[Word], Handler] = {words.Goodbye: _nothing}
    door: dict[type[Word], Handler] = {words.Hello: gate.hello, words.Proof: gate.proof}
    variable: dict[type[Word], Handler] = {words.SetVariable: variables.set, words.UnsetVariable: variables.unset}
    everything: dict[type[Word], Handler] = {
        words.Call: router.call,
        words.Part: router.part,
        words.Cancel: router.cancel,
        words.Result: router.result,
        words.Failure: router.failure,
        words.Progress: router.progress,
        words.Stray: router.stray,
        words.Publish: publishing.publish,
        words.Subscribe: publishing.subscribe,
        words.Unsubscribe: publishing.unsubscribe,
        words.CloseTopic: publishing.close_topic,
        words.Discover: discovery.discover,
        words.Description: discovery.describe,
        words.Attachment: attachments.arrived,
        words.Hurry: attachments.hurry,
        **own,
    }
    return {
        Stage.DOOR: parting | door,
        Stage.NOBODY: parting | variable,
        Stage.OPEN: parting | variable | everything,
        Stage.OVER: {},
    }


def _nothing(_session: Session, _word: Word, _now: float) -> Deliveries:
    return []
