"""Which of several hubs on one broker answers on a topic: the one that claimed it first.

Each hub tells what it claims in one retained message of its own, `fiveways/hubs/<id>`, which its will takes back when
it is gone. A claim has a number, higher than all that its hub knew of. The lowest number holds, and of equal ones that
of the lower id; a hub counts its own claims only when the broker has sent them back. So what is decided depends on
nothing but the order of the broker, which is the same for all, and no request is answered twice.
"""

import msgspec

FOLDER = "fiveways/hubs"
FILTER = f"{FOLDER}/+"
_MOST_HUBS = 1000
"""Hubs of which something is remembered: more are no hubs."""
_decode = msgspec.json.Decoder(dict[str, int]).decode


class Claims:
    """What this hub wants to answer, and what others have claimed. It lasts as long as a link to the broker."""

    def __init__(self, name: str) -> None:
        self.place = f"{FOLDER}/{name}"
        self._name = name
        self._hubs: dict[str, dict[str, int]] = {}
        """The claims of each hub as the broker told them, ours too."""
        self._mine: dict[str, int] = {}
        """Ours as they were told last."""
        self.held: frozenset[str] = frozenset()
        """Topics on which it is ours to answer."""

    def want(self, topics: frozenset[str]) -> bytes | None:
        """Claim these and nothing else; return what is to be told, if that is news."""
        if topics == self._mine.keys():
            return None
        highest = max((number for claims in self._hubs.values() for number in claims.values()), default=0)
        highest = max(highest, *self._mine.values(), 0)
        self._mine = {topic: self._mine.get(topic, highest + 1) for topic in sorted(topics)}
        # What is not wanted any more is not answered from now on; what is new must come back first.
        self.held &= topics
        return msgspec.json.encode(self._mine)

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take what a hub tells, an empty text if it is gone; say whether that changes what is held."""
        name = topic.rpartition("/")[2]
        try:
            claims = _decode(payload) if payload else {}
        except (msgspec.DecodeError, RecursionError):
            return False  # no hub says so
        if not claims:
            self._hubs.pop(name, None)
        elif name in self._hubs or len(self._hubs) < _MOST_HUBS:
            self._hubs[name] = claims
        before, self.held = self.held, frozenset(filter(self._is_ours, self._mine))
        return self.held != before

    @property
    def is_told(self) -> bool:
        """Whether the broker has sent back what we claim."""
        return self._hubs.get(self._name) == self._mine

    def rivals(self) -> dict[str, str]:
        """Return who holds what we want too, by topic."""
        return {topic: self._holder(topic) for topic in self._mine if topic not in self.held and self._holder(topic)}

    def _is_ours(self, topic: str) -> bool:
        return self._holder(topic) == self._name

    def _holder(self, topic: str) -> str:
        claims = [(numbers[topic], name) for name, numbers in self._hubs.items() if topic in numbers]
        return min(claims)[1] if claims else ""
