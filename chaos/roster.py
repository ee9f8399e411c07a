"""All kinds of participants, and the number of each."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from chaos.configuration import GUEST, KEEPER, VAULT, Configuration
from chaos.hubs import HubAddress, KillableHub
from chaos.identities import VAULT_METHOD, AuthorizedCaller, OwnerTokens, UnauthorizedPeer
from chaos.methods import METHOD, STAMPED
from chaos.participants import Participant
from chaos.raw_nq import RawRequester
from chaos.raw_peers import KINDS, RawUmq
from chaos.raw_services import RawService
from chaos.reloads import Reloader
from chaos.requesters import HttpRequester, Requester, WebSocketRequester, ZmqRequester
from chaos.retained import TOPICS, RetainedReader, RetainedWriter
from chaos.services import Service
from chaos.work_queues import JobStates, LrpmProducer, NqProducer, QueueDrainer, Worker

_REQUESTERS: Final[tuple[type[Requester], ...]] = (HttpRequester, WebSocketRequester, ZmqRequester)


@dataclass(frozen=True)
class RunContext:
    """The hub, and the other inputs of the participants."""

    hub: KillableHub
    random: Random
    configuration: Configuration
    tokens: OwnerTokens
    in_flight: int
    chosen: Collection[str]


def requesters(hub: HubAddress, random: Random, in_flight: int) -> list[Requester]:
    """Return requesters with the hub's own conversation, three per transport."""
    share = max(1, in_flight // 9)
    return [_REQUESTERS[number % 3](hub, _random(random), f"r{number}", share) for number in range(9)]


def raw_requesters(
    hub: HubAddress, random: Random, in_flight: int, methods: tuple[str, ...] = (METHOD, STAMPED)
) -> list[RawRequester]:
    """Return three requesters written from the specification."""
    share, targets = max(1, in_flight // 18), tuple(name.replace(".", "-") for name in methods)
    return [RawRequester(hub, _random(random), f"raw{number}", share, targets) for number in range(3)]


def services(hub: HubAddress, random: Random) -> list[Service]:
    """Return services with the hub's own client."""
    return [Service(hub, _random(random), number) for number in range(4)]


def raw_services(hub: HubAddress, random: Random) -> list[RawService]:
    """Return services over raw WebSockets."""
    return [RawService(hub, _random(random), KINDS[number % 2], (METHOD, STAMPED)) for number in range(4)]


def _chosen_raw_requesters(context: RunContext) -> Sequence[Participant]:
    methods = (METHOD, STAMPED) if "raw-services" in context.chosen else (METHOD,)
    return raw_requesters(context.hub, context.random, context.in_flight, methods)


def _queues(context: RunContext) -> list[Participant]:
    hub, states = context.hub, JobStates()
    return [
        LrpmProducer(hub, _random(context.random), states),
        NqProducer(hub, _random(context.random), states),
        *(Worker(hub, _random(context.random), KINDS[number % 2], states) for number in range(4)),
        QueueDrainer(hub, _random(context.random), states),
    ]


def _retained(context: RunContext) -> list[Participant]:
    writers = [RetainedWriter(context.hub, _random(context.random), number) for number in range(TOPICS)]
    return [*writers, RetainedReader(context.hub, _random(context.random), writers)]


def _identities(context: RunContext) -> list[Participant]:
    hub, fixed, tokens = context.hub, context.configuration.fixed, context.tokens
    target = VAULT_METHOD.replace(".", "-")
    return [
        RawService(hub, _random(context.random), RawUmq, (VAULT_METHOD,), fixed[VAULT]),
        *(AuthorizedCaller(hub, _random(context.random), number, tokens) for number in range(2)),
        UnauthorizedPeer(hub, _random(context.random), fixed[GUEST], fixed[KEEPER], tokens),
        RawRequester(hub, _random(context.random), "rawkeeper", 20, (target,), fixed[KEEPER]),
    ]


def _reloads(context: RunContext) -> list[Participant]:
    return [Reloader(context.hub, _random(context.random), context.configuration, context.tokens)]


def _random(random: Random) -> Random:
    return Random(random.random())


_FACTORIES: Final[dict[str, Callable[[RunContext], Sequence[Participant]]]] = {
    "services": lambda context: services(context.hub, context.random),
    "raw-services": lambda context: raw_services(context.hub, context.random),
    "requesters": lambda context: requesters(context.hub, context.random, context.in_flight),
    "raw-requesters": _chosen_raw_requesters,
    "queues": _queues,
    "retained": _retained,
    "identities": _identities,
    "reloads": _reloads,
}
JOURNAL: Final = "journal"
"""Not a participant, but chosen like one: the hub writes a journal, which is audited at the end."""
KINDS_OF_PARTICIPANTS: Final = (*_FACTORIES, JOURNAL)


def make_participants(context: RunContext) -> list[Participant]:
    """Return the chosen participants."""
    return [participant for name, make in _FACTORIES.items() if name in context.chosen for participant in make(context)]
