"""The bridge between MQTT topics and topics of the hub, in one direction or both."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from fiveways.errors import FivewaysError, LocalProtocolError, TooLarge, Unrepresentable
from fiveways.model import topics
from fiveways.model.messages import Event, Publish
from fiveways.model.topics import BadTopic, Pattern, Topic
from fiveways.runtime.mqtt.echo_tracker import EchoTracker
from fiveways.wire.payload import NULL, Binary, Payload, Text

IN: Final = "in"
OUT: Final = "out"
_MAX_UNECHOED: Final = 0xFFFF
"""The maximum of unacknowledged messages on one MQTT connection."""
_MAX_REMEMBERED: Final = 10_000

EchoKey = tuple[str, bytes]
RetainedLookup = Callable[[Topic], tuple[Payload, int] | None]
"""Returns the retained value of a topic in the hub, and the number of its publication."""


class BadFilters(FivewaysError):
    """Filters that are invalid or overlap."""


class TopicBridge:
    """Selects the bridged topics, and separates echoes from messages of others."""

    def __init__(self, filters: Mapping[str, str], max_payload: int) -> None:
        """Raise BadFilters if a filter is invalid or two of them match the same topic."""
        patterns = {each: _pattern(each) for each in filters}
        _check_disjoint(list(patterns.items()))
        self._max_payload = max_payload
        self.inbound = tuple(each for each, direction in filters.items() if direction != OUT)
        """Subscriptions at the broker."""
        self.outbound = {each: patterns[each] for each, direction in filters.items() if direction != IN}
        """Subscriptions at the hub."""
        self._inbound_patterns = [patterns[each] for each in self.inbound]
        self._echoes = EchoTracker(_MAX_UNECHOED)
        self._clock: Callable[[], float] = float
        self._broker_values: dict[Topic, bytes] = {}
        """Retained values of the broker, as far as known."""
        self._find_retained: RetainedLookup = _no_retained
        self._last_publication = 0
        """The hub's last publication before the connection: the broker cannot know later ones."""

    def reset(self, find_retained: RetainedLookup, last: int, clock: Callable[[], float]) -> None:
        """Begin with a new connection, on which no echoes of the last one arrive."""
        self._find_retained, self._last_publication, self._clock = find_retained, last, clock
        self._echoes.clear()
        self._broker_values.clear()

    def to_hub(self, topic: str, payload: bytes, *, retained: bool) -> Publish | None:
        """Return the publication for a message of the broker; None for an echo, a known value or an unbridged topic."""
        try:
            topic_path = topics.parse(topic, topics.MQTT)
        except BadTopic:
            return None
        if not self._matches_inbound(topic_path) or self._echoes.take_echo(_echo(topic, payload), self._clock()):
            return None
        retained_value = self._find_retained(topic_path)
        if retained:
            if len(self._broker_values) < _MAX_REMEMBERED:
                self._broker_values[topic_path] = payload
            if retained_value is not None and (
                retained_value[1] > self._last_publication or _is_same_value(retained_value[0], payload)
            ):
                return None  # the hub's value is newer, or the same
        # A broker sets the retain flag only for new subscribers: a message on a topic with a retained value replaces
        # that value. An empty message removes it.
        return Publish(
            None,
            topic_path,
            _decode_payload(payload),
            retain=retained or not payload or retained_value is not None,
            exclude_me=True,
        )

    def to_broker(self, event: Event) -> tuple[str, bytes, bool] | None:
        """Return topic, payload and retain flag of an event for the broker, None if the broker has that value.

        Raises:
            LocalProtocolError, BadTopic: MQTT cannot represent the event.
        """
        topic, payload = topics.spell(event.topic, topics.MQTT), _encode_body(event.body)
        if len(payload) > self._max_payload:
            raise TooLarge(f"{len(payload)} bytes on {topic} exceed mqtt.max_payload, {self._max_payload}")
        retained_value = self._find_retained(event.topic)
        is_kept = retained_value is not None and retained_value[1] == event.publication
        if is_kept and self._broker_values.get(event.topic) == payload:
            return None
        clears = not payload and retained_value is None
        if is_kept and len(self._broker_values) < _MAX_REMEMBERED:
            self._broker_values[event.topic] = payload
        elif clears:
            self._broker_values.pop(event.topic, None)
        return topic, payload, is_kept or clears

    def note_published(self, topic: str, payload: bytes) -> None:
        """Expect the echo of a published message if its topic is subscribed."""
        if self._matches_inbound(topics.parse(topic, topics.MQTT)):
            self._echoes.add(_echo(topic, payload), self._clock())

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the hub is subscribed to a topic of the broker."""
        try:
            return self._matches_inbound(topics.parse(topic, topics.MQTT))
        except BadTopic:
            return False

    def _matches_inbound(self, topic: Topic) -> bool:
        return any(pattern.matches(topic) for pattern in self._inbound_patterns)


def _no_retained(_topic: Topic) -> None:
    """Return None: without a connection, no retained values are needed."""


def _echo(topic: str, payload: bytes) -> EchoKey:
    return topic, blake2b(payload, digest_size=16).digest()


def _decode_payload(payload: bytes) -> Payload:
    """Return UTF-8 as text, no bytes as null, other bytes as they are."""
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
        return body.text().encode() or b'""'  # an empty message means null
    except UnicodeEncodeError as exc:
        raise Unrepresentable("half of a surrogate pair in a text") from exc


def _is_same_value(body: Payload, payload: bytes) -> bool:
    try:
        return _encode_body(body) == payload
    except LocalProtocolError:
        return False


def _pattern(spelling: str) -> Pattern:
    try:
        return topics.parse_pattern(spelling, topics.MQTT)
    except BadTopic as exc:
        raise BadFilters(f"mqtt.topics: {spelling!r}: {exc}") from exc


def _check_disjoint(patterns: list[tuple[str, Pattern]]) -> None:
    """Refuse filters that overlap: brokers differ in whether they deliver such a message once or twice."""
    for number, (one, pattern) in enumerate(patterns):
        for other, other_pattern in patterns[:number]:
            if filters_overlap(pattern, other_pattern):
                raise BadFilters(f"mqtt.topics: {other!r} and {one!r} overlap; a topic needs one direction")


def filters_overlap(one: Pattern, other: Pattern) -> bool:
    """Return whether a topic exists that both filters match."""
    if _excludes_system_topic(one, other) or _excludes_system_topic(other, one):
        return False
    for level, other_level in zip(one.levels, other.levels, strict=False):
        if level and other_level and level != other_level:
            return False
    short, long = sorted((one, other), key=lambda pattern: len(pattern.levels))
    return len(short.levels) == len(long.levels) or short.matches_deeper


def _excludes_system_topic(pattern: Pattern, other: Pattern) -> bool:
    """Return whether one begins with a wildcard and the other with `$`: such wildcards match no `$` topic."""
    first = other.levels[0] if other.levels else ()
    return not (pattern.levels and pattern.levels[0]) and bool(first) and first[0].startswith("$")
