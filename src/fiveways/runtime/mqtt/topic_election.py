"""Which of several hubs on one broker answers on a topic: the one that claimed it first.

Each hub tells what it claims in messages of its own, `fiveways/hubs/<id>`; its will, an empty one, tells that it is
gone. Nothing of that is retained: a broker that comes back after a crash must not tell of hubs that do not. Who comes
anew says so by a message without claims, hears what the others have, and then claims. A claim has a number, higher
than all that its hub knew of. The lowest number holds, and of equal ones that of the lower id; a hub counts its own
claims only when the broker has sent them back. So what is decided depends on nothing but the order of the broker, which
is the same for all, and no request is answered twice.

Anybody may publish such messages where the broker has no access lists. So a hub asks the others to tell their claims
again, by a message without claims under a name that is no hub's. A hub that says nothing for `SILENT` seconds is none:
the broker would have ended the link of a hub that was stuck for so long, and would have published its will.
"""

from collections import deque
from typing import Annotated, Final

import msgspec
from msgspec import Meta

CLAIMS_PREFIX: Final = "fiveways/hubs/"
CLAIMS_FILTER: Final = f"{CLAIMS_PREFIX}+"
NO_CLAIMS: Final = b"{}"
"""What a hub says that has come, or that claims nothing any more."""
_MAX_HUBS: Final = 100
_MAX_TOPICS: Final = 1000
SILENCE_TIMEOUT: Final = 60.0
"""Seconds; the broker ends a link after 45, one and a half of the keepalive of `open_mqtt`."""
_QUERY_SUFFIX: Final = "-asks"
_MAX_UNECHOED: Final = 64
_MAX_MESSAGE: Final = 1 << 17
"""Bytes of what a hub says. More of anything is said by no hub."""
_decode = msgspec.json.Decoder(
    Annotated[dict[str, Annotated[int, Meta(ge=0, le=2**53)]], Meta(max_length=_MAX_TOPICS)]
).decode


class TopicElection:
    """What this hub wants to answer, and what others have claimed. It lasts as long as a link to the broker."""

    def __init__(self, name: str) -> None:
        self.own_topic = f"{CLAIMS_PREFIX}{name}"
        self.query_topic = f"{self.own_topic}{_QUERY_SUFFIX}"
        """Where a message without claims asks all hubs for theirs."""
        self._name = name
        self._unechoed: deque[bytes] = deque(maxlen=_MAX_UNECHOED)
        """Our messages, until they come back."""
        self._may_receive_old_will = True
        """The will of an earlier link may come yet, once."""
        self._unanswered: dict[str, float] = {}
        """Hubs that we asked and that have said nothing since, and when the broker sent our question back."""
        self._hubs: dict[str, dict[str, int]] = {}
        """The claims of each hub as the broker told them, ours too."""
        self._own_claims: dict[str, int] = {}
        """Ours as they were told last."""
        self.owned: frozenset[str] = frozenset()
        """Topics on which it is ours to answer."""
        self.must_publish = False
        """Somebody has to be told what we claim: it has come anew, or believes something else."""

    def set_wanted(self, topics: frozenset[str]) -> bytes | None:
        """Claim these and nothing else; return what is to be told, if that is news to anybody."""
        if topics != self._own_claims.keys():
            highest = max((number for claims in self._hubs.values() for number in claims.values()), default=0)
            highest = max(highest, *self._own_claims.values(), 0)
            self._own_claims = {topic: self._own_claims.get(topic, highest + 1) for topic in sorted(topics)}
            # What is not wanted any more is not answered from now on; what is new must come back first.
            self.owned &= topics
        elif not self.must_publish:
            return None
        self.must_publish = False
        return msgspec.json.encode(self._own_claims)

    def note_published(self, payload: bytes) -> None:
        """Note that we publish this."""
        self._unechoed.append(payload)

    def is_own_message(self, topic: str, payload: bytes) -> bool:
        """Say whether a message in our name can be from us. One that repeats our claims does no harm."""
        if topic != self.own_topic:
            return True
        if payload in self._unechoed:
            while payload != self._unechoed.popleft():
                pass  # the broker keeps the order, so these were lost
            return True
        if not payload and self._may_receive_old_will:
            self._may_receive_old_will = False
            return True
        return payload == msgspec.json.encode(self._own_claims)

    def receive(self, topic: str, payload: bytes, now: float = 0.0) -> bool:
        """Take what a hub tells, nothing if it is gone; say whether there is something to be done about it."""
        if topic == self.query_topic:
            for name in self.others:
                self._unanswered.setdefault(name, now)
            return False
        name = topic.removeprefix(CLAIMS_PREFIX)
        if len(payload) > _MAX_MESSAGE:
            return False
        try:
            claims = _decode(payload) if payload else {}
        except (ValueError, RecursionError):  # of which bad UTF-8 and bad JSON are kinds
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
        gone = [name for name, since in self._unanswered.items() if now - since >= SILENCE_TIMEOUT]
        for name in gone:
            del self._unanswered[name]
            self._hubs.pop(name, None)
        self._elect()
        return gone

    @property
    def others(self) -> list[str]:
        """Other hubs that claim something."""
        return [name for name in self._hubs if name != self._name]

    @property
    def is_confirmed(self) -> bool:
        """Whether the broker has sent back what we claim."""
        return bool(self._own_claims) and not self.awaits_echo

    @property
    def awaits_echo(self) -> bool:
        """Whether we claim something that the broker has not sent back."""
        return bool(self._own_claims) and self._hubs.get(self._name) != self._own_claims

    def rivals(self) -> dict[str, str]:
        """Return what we want too and another holds, and the name of that hub."""
        holders = ((topic, self._owner(topic)) for topic in self._own_claims)
        return {topic: holder for topic, holder in holders if holder not in {"", self._name}}

    def _elect(self) -> None:
        self.owned = frozenset(topic for topic in self._own_claims if self._owner(topic) == self._name)

    def _owner(self, topic: str) -> str:
        claims = [(numbers[topic], name) for name, numbers in self._hubs.items() if topic in numbers]
        return min(claims)[1] if claims else ""
