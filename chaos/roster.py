"""All kinds of participants, and how many of each take part."""

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
    """The hub, and all else that participants are made from."""

    hub: KillableHub
    random: Random
    configuration: Configuration
    tokens: OwnerTokens
    in_flight: int
    chosen: Collection[str]


def requesters(hub: HubAddress, random: Random, in_flight: int) -> list[Requester]:
    """Return those with the hub's own conversation, three on each transport."""
    share = max(1, in_flight // 9)
    return [_REQUESTERS[each % 3](hub, _random(random), f"r{each}", share) for each in range(9)]


def raw_requesters(
    hub: HubAddress, random: Random, in_flight: int, methods: tuple[str, ...] = (METHOD, STAMPED)
) -> list[RawRequester]:
    """Return three of the others."""
    share, targets = max(1, in_flight // 18), tuple(name.replace(".", "-") for name in methods)
    return [RawRequester(hub, _random(random), f"raw{each}", share, targets) for each in range(3)]


def services(hub: HubAddress, random: Random) -> list[Service]:
    """Return those with the hub's own client."""
    return [Service(hub, _random(random), each) for each in range(4)]


def raw_services(hub: HubAddress, random: Random) -> list[RawService]:
    """Return the others."""
    return [RawService(hub, _random(random), KINDS[each % 2], (METHOD, STAMPED)) for each in range(4)]


def _chosen_raw_requesters(stage: RunContext) -> Sequence[Participant]:
    methods = (METHOD, STAMPED) if "raw-services" in stage.chosen else (METHOD,)
    return raw_requesters(stage.hub, stage.random, stage.in_flight, methods)


def _queues(stage: RunContext) -> list[Participant]:
    hub, ledger = stage.hub, JobStates()
    return [
        LrpmProducer(hub, _random(stage.random), ledger),
        NqProducer(hub, _random(stage.random), ledger),
        *(Worker(hub, _random(stage.random), KINDS[each % 2], ledger) for each in range(4)),
        QueueDrainer(hub, _random(stage.random), ledger),
    ]


def _retained(stage: RunContext) -> list[Participant]:
    writers = [RetainedWriter(stage.hub, _random(stage.random), each) for each in range(TOPICS)]
    return [*writers, RetainedReader(stage.hub, _random(stage.random), writers)]


def _identities(stage: RunContext) -> list[Participant]:
    hub, fixed, tokens = stage.hub, stage.configuration.fixed, stage.tokens
    target = VAULT_METHOD.replace(".", "-")
    return [
        RawService(hub, _random(stage.random), RawUmq, (VAULT_METHOD,), fixed[VAULT]),
        *(AuthorizedCaller(hub, _random(stage.random), each, tokens) for each in range(2)),
        UnauthorizedPeer(hub, _random(stage.random), fixed[GUEST], fixed[KEEPER], tokens),
        RawRequester(hub, _random(stage.random), "rawkeeper", 20, (target,), fixed[KEEPER]),
    ]


def _reloads(stage: RunContext) -> list[Participant]:
    return [Reloader(stage.hub, _random(stage.random), stage.configuration, stage.tokens)]


def _random(random: Random) -> Random:
    return Random(random.random())


_MADE: Final[dict[str, Callable[[RunContext], Sequence[Participant]]]] = {
    "services": lambda stage: services(stage.hub, stage.random),
    "raw-services": lambda stage: raw_services(stage.hub, stage.random),
    "requesters": lambda stage: requesters(stage.hub, stage.random, stage.in_flight),
    "raw-requesters": _chosen_raw_requesters,
    "queues": _queues,
    "retained": _retained,
    "identities": _identities,
    "reloads": _reloads,
}
JOURNAL: Final = "journal"
"""No participant, but chosen like one: the hub writes a journal, and it is read in the end."""
KINDS_OF_PARTICIPANTS: Final = (*_MADE, JOURNAL)


def cast(stage: RunContext) -> list[Participant]:
    """Return the chosen participants."""
    return [each for name, make in _MADE.items() if name in stage.chosen for each in make(stage)]
