"""MQTT topics that are topics of the hub as well, in one direction or in both."""

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.model import topics
from fiveways.model.messages import Event, Publish
from fiveways.model.topics import BadTopic, Pattern, Topic
from fiveways.wire.payload import NULL, Binary, Payload, Text

IN: Final = "in"
OUT: Final = "out"
BOTH: Final = "both"
_MOST_UNECHOED: Final = 10_000
_ECHO_WITHIN: Final = 30.0
"""Seconds after which what we published is not expected back any more."""
_MOST_RETAINED: Final = 10_000

Echo = tuple[str, bytes]


class BadFilters(FivewaysError):
    """Filters that cannot be bridged together."""


class Bridge:
    """Knows which topics cross, and tells what comes back to us from what others say."""

    def __init__(self, filters: Mapping[str, str]) -> None:
        """Make it; BadFilters if a filter is none, or two of them can mean the same topic."""
        self._patterns = {each: _pattern(each) for each in filters}
        _check_apart(list(self._patterns.items()))
        self._ways = dict(filters)
        self.inward = tuple(each for each, way in filters.items() if way != OUT)
        """What to subscribe to at the broker."""
        self.outward = {each: self._patterns[each] for each, way in filters.items() if way != IN}
        """What to subscribe to at the hub."""
        self._listened = [self._patterns[each] for each in self.inward]
        self._unechoed: OrderedDict[Echo, list[float]] = OrderedDict()
        self._waiting = 0
        self._left: set[Topic] = set()
        """Topics whose value the broker retains because of us."""

    def begin(self) -> None:
        """Begin with a new link: what was said on the last one does not come back here."""
        self._unechoed.clear()
        self._waiting = 0

    def take(self, topic: str, payload: bytes, *, retained: bool, now: float) -> Publish | None:
        """Return what a message of the broker means at the hub; None if it is ours, or does not cross."""
        try:
            where = topics.parse(topic, topics.MQTT)
        except BadTopic:
            return None
        if not self._is_listened(where) or self._is_echo(topic, payload, now):
            return None
        # A broker takes a retained value back with an empty message, which it passes on without saying so.
        return Publish(None, where, _read(payload), retain=retained or not payload, exclude_me=True)

    def give(self, event: Event, *, is_retained: bool, now: float) -> tuple[str, bytes, bool]:
        """Return topic, payload and flag of an event for the broker; Unrepresentable, BadTopic if it has none."""
        topic, payload = topics.spell(event.topic, topics.MQTT), _written(event.body)
        retain = is_retained
        if is_retained and len(self._left) < _MOST_RETAINED:
            self._left.add(event.topic)
        elif not payload and event.topic in self._left:
            retain = True
            self._left.discard(event.topic)
        if self._is_listened(event.topic):
            self._expect(topic, payload, now)
        return topic, payload, retain

    def _is_listened(self, topic: Topic) -> bool:
        return any(pattern.matches(topic) for pattern in self._listened)

    # What comes back.

    def _expect(self, topic: str, payload: bytes, now: float) -> None:
        while self._unechoed and (self._waiting >= _MOST_UNECHOED or self._first() < now):
            self._drop(next(iter(self._unechoed)))
        self._unechoed.setdefault(_echo(topic, payload), []).append(now + _ECHO_WITHIN)
        self._waiting += 1

    def _is_echo(self, topic: str, payload: bytes, now: float) -> bool:
        echo = _echo(topic, payload)
        until = self._unechoed.get(echo)
        if until is None:
            return False
        is_ours = until[-1] >= now
        self._drop(echo)
        return is_ours

    def _first(self) -> float:
        return next(iter(self._unechoed.values()))[0]

    def _drop(self, echo: Echo) -> None:
        self._unechoed[echo].pop(0)
        self._waiting -= 1
        if not self._unechoed[echo]:
            del self._unechoed[echo]


def _echo(topic: str, payload: bytes) -> Echo:
    return topic, blake2b(payload, digest_size=16).digest()


def _read(payload: bytes) -> Payload:
    """Return a text as UMQ would read it, JSON as its value; nothing as null, other bytes as they are."""
    if not payload:
        return NULL
    try:
        return Text(payload.decode())
    except UnicodeDecodeError:
        return Binary(payload)


def _written(body: Payload) -> bytes:
    value = body.value() if not isinstance(body, Text) else body.raw
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    try:
        return body.text().encode() or b'""'  # an empty message would be null
    except UnicodeEncodeError as exc:
        raise Unrepresentable("half of a surrogate pair in a text") from exc


# Filters.


def _pattern(written: str) -> Pattern:
    try:
        return topics.parse_pattern(written, topics.MQTT)
    except BadTopic as exc:
        raise BadFilters(f"mqtt.topics: {written!r}: {exc}") from exc


def _check_apart(patterns: list[tuple[str, Pattern]]) -> None:
    """Refuse filters that share a topic: brokers differ in whether that is delivered once or twice."""
    for number, (one, pattern) in enumerate(patterns):
        for other, another in patterns[:number]:
            if _meet(pattern, another):
                raise BadFilters(f"mqtt.topics: {other!r} and {one!r} overlap: one topic must have one way")


def _meet(one: Pattern, other: Pattern) -> bool:
    """Say whether there is a topic that both match."""
    if _is_apart(one, other) or _is_apart(other, one):
        return False
    for mine, theirs in zip(one.levels, other.levels, strict=False):
        if mine and theirs and mine != theirs:
            return False
    short, long = sorted((one, other), key=lambda pattern: len(pattern.levels))
    return len(short.levels) == len(long.levels) or short.rest


def _is_apart(wild: Pattern, other: Pattern) -> bool:
    """Say whether they differ in the first segment: wildcards match none that begins with `$`."""
    first = other.levels[0] if other.levels else ()
    return not (wild.levels and wild.levels[0]) and bool(first) and first[0].startswith("$")
