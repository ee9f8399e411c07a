"""MQTT topics that are topics of the hub as well, in one direction or in both."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from fiveways.errors import FivewaysError, LocalProtocolError, TooLarge, Unrepresentable
from fiveways.model import topics
from fiveways.model.messages import Event, Publish
from fiveways.model.topics import BadTopic, Pattern, Topic
from fiveways.runtime.mqtt.echo_tracker import EchoTracker
from fiveways.runtime.mqtt.filters import filters_overlap
from fiveways.wire.payload import NULL, Binary, Payload, Text

IN: Final = "in"
OUT: Final = "out"
_MAX_UNECHOED: Final = 0xFFFF
"""A link has no more messages under way than that."""
_MAX_REMEMBERED: Final = 10_000

EchoKey = tuple[str, bytes]
RetainedLookup = Callable[[Topic], tuple[Payload, int] | None]
"""What the hub keeps for a topic, and the number of that publication."""


class BadFilters(FivewaysError):
    """Filters that cannot be bridged together."""


class TopicBridge:
    """Knows which topics cross, and tells what comes back to us from what others say."""

    def __init__(self, filters: Mapping[str, str], max_payload: int) -> None:
        """Make it; BadFilters if a filter is none, or two of them can mean the same topic."""
        patterns = {each: _pattern(each) for each in filters}
        _check_disjoint(list(patterns.items()))
        self._max_payload = max_payload
        self.inbound = tuple(each for each, way in filters.items() if way != OUT)
        """What to subscribe to at the broker."""
        self.outbound = {each: patterns[each] for each, way in filters.items() if way != IN}
        """What to subscribe to at the hub."""
        self._inbound_patterns = [patterns[each] for each in self.inbound]
        self._echoes = EchoTracker(_MAX_UNECHOED)
        self._clock: Callable[[], float] = float
        self._broker_values: dict[Topic, bytes] = {}
        """What the broker keeps, as far as it has told."""
        self._find_retained: RetainedLookup = _no_retained
        self._last = 0
        """The last publication of the hub before the link: what came later, the broker cannot know."""

    def reset(self, kept: RetainedLookup, last: int, clock: Callable[[], float]) -> None:
        """Begin with a new link: what was said on the last one does not come back here."""
        self._find_retained, self._last, self._clock = kept, last, clock
        self._echoes.clear()
        self._broker_values.clear()

    def to_hub(self, topic: str, payload: bytes, *, retained: bool) -> Publish | None:
        """Return what a message of the broker means at the hub; None if that is no news, or does not cross."""
        try:
            where = topics.parse(topic, topics.MQTT)
        except BadTopic:
            return None
        if not self._matches_inbound(where) or self._echoes.take_echo(_echo(topic, payload), self._clock()):
            return None
        known = self._find_retained(where)
        if retained:
            if len(self._broker_values) < _MAX_REMEMBERED:
                self._broker_values[where] = payload
            if known is not None and (known[1] > self._last or _is_same_value(known[0], payload)):
                return None  # the hub's value is newer, or the same
        # A broker says that a message is retained to newcomers alone: to us, what follows on a value is the next one.
        # It takes a value back with an empty message.
        return Publish(
            None, where, _decode_payload(payload), retain=retained or not payload or known is not None, exclude_me=True
        )

    def to_broker(self, event: Event) -> tuple[str, bytes, bool] | None:
        """Return topic, payload and flag of an event for the broker, None if it has that already.

        Raises:
            LocalProtocolError, BadTopic: it has no form there.
        """
        topic, payload = topics.spell(event.topic, topics.MQTT), _encode_body(event.body)
        if len(payload) > self._max_payload:
            raise TooLarge(f"{len(payload)} bytes on {topic}, where mqtt.max_payload is {self._max_payload}")
        known = self._find_retained(event.topic)
        is_kept = known is not None and known[1] == event.publication
        if is_kept and self._broker_values.get(event.topic) == payload:
            return None
        clears = not payload and known is None
        if is_kept and len(self._broker_values) < _MAX_REMEMBERED:
            self._broker_values[event.topic] = payload
        elif clears:
            self._broker_values.pop(event.topic, None)
        return topic, payload, is_kept or clears

    def note_published(self, topic: str, payload: bytes) -> None:
        """Know that this was published, and will come back if we listen there."""
        if self._matches_inbound(topics.parse(topic, topics.MQTT)):
            self._echoes.add(_echo(topic, payload), self._clock())

    def is_subscribed(self, topic: str) -> bool:
        """Say whether what is published on a topic of the broker comes to us."""
        try:
            return self._matches_inbound(topics.parse(topic, topics.MQTT))
        except BadTopic:
            return False

    def _matches_inbound(self, topic: Topic) -> bool:
        return any(pattern.matches(topic) for pattern in self._inbound_patterns)


def _no_retained(_topic: Topic) -> None:
    """No hub keeps anything before there is a link."""


def _echo(topic: str, payload: bytes) -> EchoKey:
    return topic, blake2b(payload, digest_size=16).digest()


def _decode_payload(payload: bytes) -> Payload:
    """Return a text as UMQ would read it, JSON as its value; nothing as null, other bytes as they are."""
    if not payload:
        return NULL
    try:
        return Text(payload.decode())
    except UnicodeDecodeError:
        return Binary(payload)


def _encode_body(body: Payload) -> bytes:
    value = body.value() if not isinstance(body, Text) else body.raw
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    try:
        return body.text().encode() or b'""'  # an empty message would be null
    except UnicodeEncodeError as exc:
        raise Unrepresentable("half of a surrogate pair in a text") from exc


def _is_same_value(body: Payload, payload: bytes) -> bool:
    try:
        return _encode_body(body) == payload
    except LocalProtocolError:
        return False


def _pattern(written: str) -> Pattern:
    try:
        return topics.parse_pattern(written, topics.MQTT)
    except BadTopic as exc:
        raise BadFilters(f"mqtt.topics: {written!r}: {exc}") from exc


def _check_disjoint(patterns: list[tuple[str, Pattern]]) -> None:
    """Refuse filters that share a topic: brokers differ in whether that is delivered once or twice."""
    for number, (one, pattern) in enumerate(patterns):
        for other, another in patterns[:number]:
            if filters_overlap(pattern, another):
                raise BadFilters(f"mqtt.topics: {other!r} and {one!r} overlap: one topic must have one way")
