"""Which of several hubs on one broker answers on a topic: the one that claimed it first.

Each hub tells what it claims in messages of its own, `fiveways/hubs/<id>`; its will, an empty one, tells that it is
gone. Nothing of that is retained: a broker that comes back after a crash must not tell of hubs that do not. Who comes
anew says so by a message without claims, hears what the others have, and then claims. A claim has a number, higher
than all that its hub knew of. The lowest number holds, and of equal ones that of the lower id; a hub counts its own
claims only when the broker has sent them back. So what is decided depends on nothing but the order of the broker, which
is the same for all, and no request is answered twice.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

FOLDER: Final = "fiveways/hubs/"
FILTER: Final = f"{FOLDER}+"
HERE: Final = b"{}"
"""What a hub says that has come, or that claims nothing any more."""
_MOST_HUBS: Final = 100
_MOST_TOPICS: Final = 1000
_LONGEST: Final = 1 << 17
"""Bytes of what a hub says. More of anything is said by no hub."""
_decode = msgspec.json.Decoder(
    Annotated[dict[str, Annotated[int, Meta(ge=0, le=2**53)]], Meta(max_length=_MOST_TOPICS)]
).decode


class Claims:
    """What this hub wants to answer, and what others have claimed. It lasts as long as a link to the broker."""

    def __init__(self, name: str) -> None:
        self.place = f"{FOLDER}{name}"
        self._name = name
        self._hubs: dict[str, dict[str, int]] = {}
        """The claims of each hub as the broker told them, ours too."""
        self._mine: dict[str, int] = {}
        """Ours as they were told last."""
        self.held: frozenset[str] = frozenset()
        """Topics on which it is ours to answer."""
        self.owes_word = False
        """Somebody has to be told what we claim: it has come anew, or believes something else."""

    def want(self, topics: frozenset[str]) -> bytes | None:
        """Claim these and nothing else; return what is to be told, if that is news to anybody."""
        if topics != self._mine.keys():
            highest = max((number for claims in self._hubs.values() for number in claims.values()), default=0)
            highest = max(highest, *self._mine.values(), 0)
            self._mine = {topic: self._mine.get(topic, highest + 1) for topic in sorted(topics)}
            # What is not wanted any more is not answered from now on; what is new must come back first.
            self.held &= topics
        elif not self.owes_word:
            return None
        self.owes_word = False
        return msgspec.json.encode(self._mine)

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take what a hub tells, nothing if it is gone; say whether there is something to be done about it."""
        name = topic.removeprefix(FOLDER)
        if len(payload) > _LONGEST:
            return False
        try:
            claims = _decode(payload) if payload else {}
        except (ValueError, RecursionError):  # of which bad UTF-8 and bad JSON are kinds
            return False
        if name == self._name:
            self.owes_word = claims != self._mine
        elif payload == HERE:
            self.owes_word = True
        if not claims:
            self._hubs.pop(name, None)
        elif name == self._name or name in self._hubs or len(self._hubs) < _MOST_HUBS:
            self._hubs[name] = claims
        before, self.held = self.held, frozenset(filter(self._is_ours, self._mine))
        return self.held != before or self.owes_word or name == self._name

    @property
    def is_told(self) -> bool:
        """Whether the broker has sent back what we claim."""
        return bool(self._mine) and not self.awaits_echo

    @property
    def awaits_echo(self) -> bool:
        """Whether we claim something that the broker has not sent back."""
        return bool(self._mine) and self._hubs.get(self._name) != self._mine

    def rivals(self) -> frozenset[str]:
        """Return what we want too, and another holds."""
        return frozenset(topic for topic in self._mine if self._holder(topic) not in {"", self._name})

    def _is_ours(self, topic: str) -> bool:
        return self._holder(topic) == self._name

    def _holder(self, topic: str) -> str:
        claims = [(numbers[topic], name) for name, numbers in self._hubs.items() if topic in numbers]
        return min(claims)[1] if claims else ""
