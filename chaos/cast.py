"""All kinds of participants, and how many of each take part."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from chaos.configuration import GUEST, KEEPER, VAULT, Configuration
from chaos.hubs import DyingHub, HubAddress
from chaos.identities import VAULT_METHOD, Outsider, Owner, Tokens
from chaos.participants import Participant
from chaos.raw_nq import RawRequester
from chaos.raw_peers import KINDS, RawUmq
from chaos.raw_services import RawService
from chaos.reloads import Reloader
from chaos.requesters import Dealer, Listener, Poller, Requester
from chaos.retained import TOPICS, Reader, Writer
from chaos.services import Service
from chaos.work import METHOD, STAMPED
from chaos.work_queues import Foreman, Ledger, LrpmProducer, NqProducer, Worker

_REQUESTERS: Final[tuple[type[Requester], ...]] = (Poller, Listener, Dealer)


@dataclass(frozen=True)
class Stage:
    """The hub, and all else that participants are made from."""

    hub: DyingHub
    random: Random
    configuration: Configuration
    tokens: Tokens
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


def _chosen_raw_requesters(stage: Stage) -> Sequence[Participant]:
    methods = (METHOD, STAMPED) if "raw-services" in stage.chosen else (METHOD,)
    return raw_requesters(stage.hub, stage.random, stage.in_flight, methods)


def _queues(stage: Stage) -> list[Participant]:
    hub, ledger = stage.hub, Ledger()
    return [
        LrpmProducer(hub, _random(stage.random), ledger),
        NqProducer(hub, _random(stage.random), ledger),
        *(Worker(hub, _random(stage.random), KINDS[each % 2], ledger) for each in range(4)),
        Foreman(hub, _random(stage.random), ledger),
    ]


def _retained(stage: Stage) -> list[Participant]:
    writers = [Writer(stage.hub, _random(stage.random), each) for each in range(TOPICS)]
    return [*writers, Reader(stage.hub, _random(stage.random), writers)]


def _identities(stage: Stage) -> list[Participant]:
    hub, fixed, tokens = stage.hub, stage.configuration.fixed, stage.tokens
    target = VAULT_METHOD.replace(".", "-")
    return [
        RawService(hub, _random(stage.random), RawUmq, (VAULT_METHOD,), fixed[VAULT]),
        *(Owner(hub, _random(stage.random), each, tokens) for each in range(2)),
        Outsider(hub, _random(stage.random), fixed[GUEST], fixed[KEEPER], tokens),
        RawRequester(hub, _random(stage.random), "rawkeeper", 20, (target,), fixed[KEEPER]),
    ]


def _reloads(stage: Stage) -> list[Participant]:
    return [Reloader(stage.hub, _random(stage.random), stage.configuration, stage.tokens)]


def _random(random: Random) -> Random:
    return Random(random.random())


_MADE: Final[dict[str, Callable[[Stage], Sequence[Participant]]]] = {
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


def cast(stage: Stage) -> list[Participant]:
    """Return the chosen participants."""
    return [each for name, make in _MADE.items() if name in stage.chosen for each in make(stage)]
