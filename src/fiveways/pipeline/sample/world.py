"""Who talks: links, the peers behind them, and who offers which method."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fiveways.pipeline.sample.options import ENCODINGS
from fiveways.pipeline.sample.script import Column, Int64Array
from fiveways.pipeline.sample.vocabulary import SERVED, TOPICS

CALLERS: Final = 12
CALLEES: Final = 6
"""Links of each protocol."""
_LINKS: Final = 2
"""Links of one peer in NQ."""
STREAMING: Final = tuple(range(3, len(SERVED), 12))
"""Methods that answer in parts."""
_NAMES: Final = ("anna", "bela", "cyril", None, "dana", "emil")


@dataclass
class World:
    """Everybody there ever was, by number."""

    encodings: tuple[str, ...]
    run: str
    names: list[str] = field(default_factory=list)
    peers: list[str | None] = field(default_factory=list)
    protocols: list[int] = field(default_factory=list)
    transports: list[str] = field(default_factory=list)
    channels: list[str | None] = field(default_factory=list)
    callers: dict[str, Int64Array] = field(default_factory=dict)
    callees: dict[str, Int64Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for protocol in self.encodings:
            if protocol == "mqtt-rpc":
                both = [self.add_session(protocol, None) for _ in range(2)]
                self.callers[protocol] = self.callees[protocol] = np.array(both)
                continue
            self.callers[protocol] = np.array(
                [self.add_session(protocol, self._peer(protocol, n)) for n in range(CALLERS)]
            )
            offered = range(100, 100 + CALLEES)
            self.callees[protocol] = np.array([self.add_session(protocol, self._peer(protocol, n)) for n in offered])
        self.permanent = len(self.names)

    def _peer(self, protocol: str, number: int) -> str | None:
        """Return who a link belongs to: in NQ two links, or one, are one peer's."""
        return f"peer{number // _LINKS:03d}" if protocol == "nq" else _NAMES[number % len(_NAMES)]

    def add_session(self, protocol: str, peer: str | None) -> int:
        """Open one more link, and return its number."""
        number = len(self.names)
        self.names.append(f"{self.run}.{protocol}.{number}")
        self.peers.append(peer)
        self.protocols.append(ENCODINGS.index(protocol))
        transport = (
            "mqtt" if protocol == "mqtt-rpc" else ("ws", "http", "zmq")[number % 3] if protocol == "nq" else "ws"
        )
        self.transports.append(transport)
        self.channels.append("/nq" if transport == "http" else None)
        return number

    def protocol_of(self, sessions: Column) -> Column:
        """Return the number of each link's protocol in `ENCODINGS`."""
        return np.asarray(np.array(self.protocols, np.int8)[sessions])

    def other_session(self, sessions: Column) -> Column:
        """Return, for links of NQ callers or callees, another link of the same peer."""
        first = np.where(np.isin(sessions, self.callers["nq"]), self.callers["nq"][0], self.callees["nq"][0])
        return np.asarray(first + ((sessions - first) ^ 1))

    def choose_callees(self, methods: Column, rng: np.random.Generator) -> Column:
        """Return, for each method, a link that offers it: each method has two, of one protocol."""
        count = len(self.encodings)
        found = np.empty(len(methods), np.int32)
        for index, protocol in enumerate(self.encodings):
            mine = np.flatnonzero(methods % count == index)
            links = self.callees[protocol]
            pair = (methods[mine] // count * 2 + rng.integers(0, 2, len(mine))) % len(links)
            found[mine] = links[pair]
        return found

    def choose_callers(self, count: int, rng: np.random.Generator) -> Column:
        """Return so many links of callers, those of all protocols alike."""
        groups = [self.callers[protocol] for protocol in self.encodings]
        which = rng.integers(0, len(groups), count)
        found = np.empty(count, np.int32)
        for index, links in enumerate(groups):
            mine = np.flatnonzero(which == index)
            # Some call more than others.
            skewed = np.minimum(rng.geometric(0.25, len(mine)) - 1, len(links) - 1)
            found[mine] = links[skewed]
        return found

    def subscribers(self, topic: int, *, with_ops: bool) -> list[int]:
        """Return the links that follow a topic; without operations, neither NQ's nor MQTT's events can be told."""
        protocols = [each for each in self.encodings if with_ops or each not in {"nq", "mqtt-rpc"}]
        found = []
        for index, protocol in enumerate(protocols):
            links = self.callers[protocol]
            found += [int(links[(topic + index) % len(links)])]
            if len(links) > 2 and topic % 2 == 0:
                found.append(int(links[(topic + index + 3) % len(links)]))
        return found

    def publishers(self, *, with_ops: bool) -> list[int]:
        """Return one link for each topic."""
        protocols = [each for each in self.encodings if with_ops or each != "mqtt-rpc"]
        return [int(self.callers[protocols[n % len(protocols)]][n % 2]) for n in range(len(TOPICS))]
