"""The participants of a capture: sessions, their peers, and the methods of each callee."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tests.support.sample_captures.options import ENCODINGS
from tests.support.sample_captures.script import Column, Int64Array
from tests.support.sample_captures.vocabulary import SERVED, TOPICS

CALLERS: Final = 12
CALLEES: Final = 6
"""Sessions per protocol."""
_LINKS: Final = 2
"""Sessions per NQ peer."""
STREAMING: Final = tuple(range(3, len(SERVED), 12))
"""Methods that stream their results."""
_NAMES: Final = ("anna", "bela", "cyril", None, "dana", "emil")


@dataclass
class World:
    """All sessions of a capture, by number."""

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
        """Return the peer of a session; two NQ sessions share a peer."""
        return f"peer{number // _LINKS:03d}" if protocol == "nq" else _NAMES[number % len(_NAMES)]

    def add_session(self, protocol: str, peer: str | None) -> int:
        """Add a session; return its number."""
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
        """Return the protocol number of each session, an index of `ENCODINGS`."""
        return np.asarray(np.array(self.protocols, np.int8)[sessions])

    def other_session(self, sessions: Column) -> Column:
        """Return, for sessions of NQ callers or callees, another session of the same peer."""
        first = np.where(np.isin(sessions, self.callers["nq"]), self.callers["nq"][0], self.callees["nq"][0])
        return np.asarray(first + ((sessions - first) ^ 1))

    def choose_callees(self, methods: Column, rng: np.random.Generator) -> Column:
        """Return a session for each method; each method has two callees of one protocol."""
        count = len(self.encodings)
        chosen = np.empty(len(methods), np.int32)
        for index, protocol in enumerate(self.encodings):
            rows = np.flatnonzero(methods % count == index)
            links = self.callees[protocol]
            pair = (methods[rows] // count * 2 + rng.integers(0, 2, len(rows))) % len(links)
            chosen[rows] = links[pair]
        return chosen

    def choose_callers(self, count: int, rng: np.random.Generator) -> Column:
        """Return random sessions of callers, equally many of each protocol."""
        groups = [self.callers[protocol] for protocol in self.encodings]
        group = rng.integers(0, len(groups), count)
        chosen = np.empty(count, np.int32)
        for index, links in enumerate(groups):
            rows = np.flatnonzero(group == index)
            # Some callers call more often.
            skewed = np.minimum(rng.geometric(0.25, len(rows)) - 1, len(links) - 1)
            chosen[rows] = links[skewed]
        return chosen

    def subscribers(self, topic: int, *, with_ops: bool) -> list[int]:
        """Return the sessions subscribed to a topic.

        Without operation ids, events of NQ and MQTT cannot be recognised; their sessions are left out.
        """
        protocols = [name for name in self.encodings if with_ops or name not in {"nq", "mqtt-rpc"}]
        sessions = []
        for index, protocol in enumerate(protocols):
            links = self.callers[protocol]
            sessions += [int(links[(topic + index) % len(links)])]
            if len(links) > 2 and topic % 2 == 0:
                sessions.append(int(links[(topic + index + 3) % len(links)]))
        return sessions

    def publishers(self, *, with_ops: bool) -> list[int]:
        """Return one session per topic."""
        protocols = [name for name in self.encodings if with_ops or name != "mqtt-rpc"]
        return [int(self.callers[protocols[n % len(protocols)]][n % 2]) for n in range(len(TOPICS))]
