"""The election of one of several hubs at one broker to answer on a topic: the first to claim it.

Each hub publishes its claims on a topic of its own, `fiveways/hubs/<id>`. Its will, an empty message, says that it is
gone. No claim is retained, because a broker that restarts must not report hubs that are gone. A new hub publishes a
message without claims, receives those of the others, and then claims. A claim has a number above all numbers that its
hub knew. The lowest number wins, and of equal ones the lower hub id. A hub counts its own claims only when the broker
has sent them back. So the result depends only on the order of messages at the broker, which is the same for all hubs,
and no request is answered twice.

Without access lists at the broker, any client can publish such messages. So a hub asks the others to publish their
claims again, by a message without claims under a name of no hub. A hub that is silent for `SILENCE_TIMEOUT` seconds
does not exist: the broker would have closed the connection of a stuck hub and published its will.
"""

from collections import deque
from typing import Annotated, Final

import msgspec
from msgspec import Meta

CLAIMS_PREFIX: Final = "fiveways/hubs/"
CLAIMS_FILTER: Final = f"{CLAIMS_PREFIX}+"
NO_CLAIMS: Final = b"{}"
"""The message of a hub that is new, or claims nothing any more."""
_MAX_HUBS: Final = 100
_MAX_TOPICS: Final = 1000
SILENCE_TIMEOUT: Final = 60.0
"""Seconds; the broker closes a silent connection after 45, which is 1.5 times the keepalive of `open_mqtt`."""
_QUERY_SUFFIX: Final = "-asks"
_MAX_UNECHOED: Final = 64
_MAX_MESSAGE: Final = 1 << 17
"""Bytes of a hub's message; larger ones are false claims."""
_decode = msgspec.json.Decoder(
    Annotated[dict[str, Annotated[int, Meta(ge=0, le=2**53)]], Meta(max_length=_MAX_TOPICS)]
).decode


class TopicElection:
    """The claims of this hub and of others, during one connection to the broker."""

    def __init__(self, name: str) -> None:
        self.own_topic = f"{CLAIMS_PREFIX}{name}"
        self.query_topic = f"{self.own_topic}{_QUERY_SUFFIX}"
        """A message without claims on this topic asks all hubs for their claims."""
        self._name = name
        self._unechoed: deque[bytes] = deque(maxlen=_MAX_UNECHOED)
        """Published messages without an echo so far."""
        self._may_receive_old_will = True
        """Whether the will of an earlier connection may still arrive, once."""
        self._unanswered: dict[str, float] = {}
        """Hubs that have not answered a query, with the time when the broker echoed it."""
        self._hubs: dict[str, dict[str, int]] = {}
        """The claims of each hub as received from the broker, this hub included."""
        self._own_claims: dict[str, int] = {}
        """This hub's claims as last published."""
        self.owned: frozenset[str] = frozenset()
        """Topics that this hub owns."""
        self.must_publish = False
        """Whether another hub needs this hub's claims: it is new, or has wrong ones."""

    def set_wanted(self, topics: frozenset[str]) -> bytes | None:
        """Claim exactly these topics; return the message to publish, None if nothing changed."""
        if topics != self._own_claims.keys():
            highest = max((number for claims in self._hubs.values() for number in claims.values()), default=0)
            highest = max(highest, *self._own_claims.values(), 0)
            self._own_claims = {topic: self._own_claims.get(topic, highest + 1) for topic in sorted(topics)}
            # Dropped topics end now; new ones need the broker's echo first.
            self.owned &= topics
        elif not self.must_publish:
            return None
        self.must_publish = False
        return msgspec.json.encode(self._own_claims)

    def note_published(self, payload: bytes) -> None:
        """Expect the echo of a published message."""
        self._unechoed.append(payload)

    def is_own_message(self, topic: str, payload: bytes) -> bool:
        """Return whether a message in this hub's name can be its own; a copy of its claims does no harm."""
        if topic != self.own_topic:
            return True
        if payload in self._unechoed:
            while payload != self._unechoed.popleft():
                pass  # the broker keeps the order: earlier ones are lost
            return True
        if not payload and self._may_receive_old_will:
            self._may_receive_old_will = False
            return True
        return payload == msgspec.json.encode(self._own_claims)

    def receive(self, topic: str, payload: bytes, now: float = 0.0) -> bool:
        """Handle a hub's message, empty if it is gone; return whether this hub must act."""
        if topic == self.query_topic:
            for name in self.others:
                self._unanswered.setdefault(name, now)
            return False
        name = topic.removeprefix(CLAIMS_PREFIX)
        if len(payload) > _MAX_MESSAGE:
            return False
        try:
            claims = _decode(payload) if payload else {}
        except (ValueError, RecursionError):  # includes invalid UTF-8 and JSON
            return False
        self._unanswered.pop(name, None)
        if name == self._name:
            self.must_publish = claims != self._own_claims
        elif payload == NO_CLAIMS:
            self.must_publish = True
        if not claims:
            self._hubs.pop(name, None)
        elif name == self._name or name in self._hubs or len(self._hubs) < _MAX_HUBS:
            self._hubs[name] = claims
        before = self.owned
        self._elect()
        return self.owned != before or self.must_publish or name == self._name

    def drop_silent(self, now: float) -> list[str]:
        """Forget the hubs that do not answer, and return their names."""
        silent = [name for name, asked_at in self._unanswered.items() if now - asked_at >= SILENCE_TIMEOUT]
        for name in silent:
            del self._unanswered[name]
            self._hubs.pop(name, None)
        self._elect()
        return silent

    @property
    def others(self) -> list[str]:
        """Other hubs with claims."""
        return [name for name in self._hubs if name != self._name]

    @property
    def is_confirmed(self) -> bool:
        """Whether the broker has echoed this hub's claims."""
        return bool(self._own_claims) and not self.awaits_echo

    @property
    def awaits_echo(self) -> bool:
        """Whether the broker has not echoed this hub's claims yet."""
        return bool(self._own_claims) and self._hubs.get(self._name) != self._own_claims

    def rivals(self) -> dict[str, str]:
        """Return the topics that this hub claims and another owns, with the name of that hub."""
        holders = ((topic, self._owner(topic)) for topic in self._own_claims)
        return {topic: holder for topic, holder in holders if holder not in {"", self._name}}

    def _elect(self) -> None:
        self.owned = frozenset(topic for topic in self._own_claims if self._owner(topic) == self._name)

    def _owner(self, topic: str) -> str:
        claims = [(numbers[topic], name) for name, numbers in self._hubs.items() if topic in numbers]
        return min(claims)[1] if claims else ""
