"""Topics and topic patterns: the hub's form, and the spelling of each protocol.

A topic is one or more segments, case-sensitive and never folded. A segment may be any text, also empty, but a single
empty segment is not a topic. Every style can spell every topic:

    MQTT   `a/b`   `/`, `+`, `#`, control characters and noncharacters in a segment are `%HH`, and a `%` that would
                   then be ambiguous is `%25`; any other `%` is literal, so a topic of a broker keeps its name
    UMQ    `a.b`   `%`, `.`, `*` and control characters in a segment are `%HH`; any `%hh` that is UTF-8 is decoded
    LRPM   `a.b`   each byte outside `[a-z0-9]` is `__hh`, but `_` between two of these stays; the empty segment is
                   `__00`, and one of NULs only has one `__00` more than NULs; any `_` not before `_` is literal
    NQ     `a-b`   like LRPM with `[A-Za-z0-9]`; `hh` is accepted in both cases
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.model.bidi_controls import find_bidi_control

Topic: TypeAlias = tuple[str, ...]
SegmentPattern: TypeAlias = tuple[str, ...]
"""Pattern of one segment: the literal pieces around each `*`. One piece is a literal, no piece is `ANY_SEGMENT`."""

ANY_SEGMENT: SegmentPattern = ()
"""MQTT's `+`: any segment, also an empty one, which `*` does not match."""
MAX_BYTES = 255
"""Maximum size of a topic in UTF-8, with one byte between segments."""

# The longest spelling of a topic: 256 empty segments in LRPM, each `__00` and a separator.
_MAX_SPELLING_LENGTH = 5 * (MAX_BYTES + 1)
_CACHE_SIZE = 1024


class BadTopic(FivewaysError):
    """Invalid topic or pattern; the message is a sentence for the sender."""


# Compared by identity: a style is part of the cache key.
@dataclass(frozen=True, slots=True, eq=False)
class TopicStyle:
    """Spelling rules of one protocol for topics and patterns."""

    label: str
    separator: str
    wildcards: str
    """Characters that make a text a pattern."""
    escape: Callable[[str], str]
    """Escapes a literal text within a segment."""
    unescape: Callable[[str], str]
    """Reverses `escape`; BadTopic for invalid escapes."""
    empty_segment: str = ""
    """Spelling of an empty segment."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Topic pattern: `levels` match the first segments; with `matches_deeper` any number may follow (MQTT's `#`).

    In every style, a wildcard at the beginning of the first segment does not match topics that begin with `$`. MQTT
    brokers behave like this, and a pattern must match the same topics in each protocol.
    """

    levels: tuple[SegmentPattern, ...]
    matches_deeper: bool = False

    @property
    def is_wildcard(self) -> bool:
        """Whether it can match more than one topic."""
        return self.matches_deeper or any(len(level) != 1 for level in self.levels)

    @property
    def literal(self) -> Topic:
        """Its only matching topic; empty for a wildcard."""
        return () if self.is_wildcard else tuple(level[0] for level in self.levels)

    def matches(self, topic: Topic) -> bool:
        """Return whether the topic matches."""
        if len(topic) < len(self.levels) or (len(topic) > len(self.levels) and not self.matches_deeper):
            return False
        if topic[0].startswith("$") and self.begins_with_wildcard:
            return False
        for level, segment in zip(self.levels, topic, strict=False):
            if len(level) == 1:
                if level[0] != segment:
                    return False
            elif level and not segment_matches(level, segment):
                return False
        return True

    @property
    def begins_with_wildcard(self) -> bool:
        """Whether it begins with a wildcard, and so matches no topic that begins with `$`."""
        return not self.levels or not self.levels[0] or not self.levels[0][0]


def parse(text: str, style: TopicStyle) -> Topic:
    """Parse a topic for publishing.

    Raises:
        BadTopic: The topic is invalid, or a pattern.
    """
    _check_text(text)
    return _parse(text, style)


@lru_cache(maxsize=_CACHE_SIZE)
def _parse(text: str, style: TopicStyle) -> Topic:
    for wildcard in style.wildcards:
        if wildcard in text:
            raise BadTopic(f"the topic {text!r} holds the wildcard {wildcard!r}")
    topic = tuple(_parse_segment(segment, style) for segment in text.split(style.separator))
    _check_size(joined := ".".join(topic))
    _check_bidi_controls(joined)
    return topic


def spell(topic: Topic, style: TopicStyle) -> str:
    """Return the spelling of a topic in a protocol; BadTopic if it is too long or empty."""
    return _spell(topic, style)


@lru_cache(maxsize=_CACHE_SIZE)
def _spell(topic: Topic, style: TopicStyle) -> str:
    _check_size(".".join(topic))
    return style.separator.join(_format_segment(segment, style) for segment in topic)


def parse_pattern(text: str, style: TopicStyle) -> Pattern:
    """Parse a topic or pattern for subscribing: wildcards are `+` and `#` in MQTT, `*` elsewhere.

    Raises:
        BadTopic: The pattern is invalid.
    """
    _check_text(text)
    segments = text.split(style.separator)
    matches_deeper = style is MQTT and segments[-1] == "#"
    if matches_deeper:
        segments.pop()
    pattern = Pattern(tuple(_parse_level(segment, style) for segment in segments), matches_deeper)
    _check_size(unescaped := _unescaped_text(pattern))
    _check_bidi_controls(unescaped)
    return pattern


def spell_pattern(pattern: Pattern, style: TopicStyle) -> str:
    """Return the spelling of a pattern in a protocol.

    MQTT has no partial wildcards within a level: the spelling may match more, so filter received topics by
    `pattern.matches`.

    Raises:
        Unrepresentable: MQTT's wildcards differ from `*` (`+` matches an empty segment, `#` any number of segments).
            And MQTT cannot subscribe to a partial wildcard in a first segment that begins with `$`.
    """
    _check_size(_unescaped_text(pattern))
    segments = [_format_level(level, style) for level in pattern.levels]
    if style is MQTT:
        first = pattern.levels[0] if pattern.levels else ANY_SEGMENT
        if len(first) > 1 and first[0].startswith("$"):
            raise Unrepresentable(
                f"the pattern {_unescaped_text(pattern)!r} has no spelling in mqtt: '+' matches no '$' topics"
            )
        return "/".join([*segments, "#"] if pattern.matches_deeper else segments)
    if pattern.matches_deeper or ANY_SEGMENT in pattern.levels:
        raise Unrepresentable(
            f"the pattern {_unescaped_text(pattern)!r} has wildcards that {style.label} does not support"
        )
    return style.separator.join(segments)


def segment_matches(level: SegmentPattern, segment: str) -> bool:
    """Match a segment against pieces with a `*` between them; each `*` matches at least one character.

    The leftmost match of a piece leaves the most characters for the next one, so no backtracking is needed.
    """
    last = level[-1]
    at, end = len(level[0]), len(segment) - len(last)
    if at >= end or not segment.startswith(level[0]) or not segment.endswith(last):
        return False
    for piece in level[1:-1]:
        position = segment.find(piece, at + 1, end)
        if position < 0:
            return False
        at = position + len(piece)
    return at < end


def _unescaped_text(pattern: Pattern) -> str:
    """Return a pattern without escapes, for error texts and size checks."""
    levels = ["+" if level == ANY_SEGMENT else "*".join(level) for level in pattern.levels]
    return ".".join([*levels, "#"] if pattern.matches_deeper else levels)


def _check_text(text: str) -> None:
    # Checked before the cache and before parsing.
    if len(text) > _MAX_SPELLING_LENGTH:
        raise BadTopic(f"the topic is too long: {len(text)} characters")


def _check_size(joined: str) -> None:
    if not joined:
        raise BadTopic("the topic is empty")
    try:
        size = len(joined.encode())
    except UnicodeEncodeError:
        raise BadTopic("the topic contains a lone surrogate") from None
    if size > MAX_BYTES:
        raise BadTopic(f"the topic is too long: {size} of at most {MAX_BYTES} bytes")


def _check_bidi_controls(joined: str) -> None:
    if character := find_bidi_control(joined):
        raise BadTopic(f"the topic contains {character!r}, which is not allowed in topics")


def _parse_segment(text: str, style: TopicStyle) -> str:
    if not style.empty_segment:
        return style.unescape(text)
    if not text:
        raise BadTopic(f"the topic has an empty segment, which {style.label} writes {style.empty_segment!r}")
    segment = style.unescape(text)
    return segment if segment.strip("\0") else segment[1:]


def _format_segment(segment: str, style: TopicStyle) -> str:
    # `__00` is also the escape of NUL: one more of them distinguishes a segment of NULs from the empty one.
    extra = "" if segment.strip("\0") else style.empty_segment
    return extra + style.escape(segment)


def _parse_level(text: str, style: TopicStyle) -> SegmentPattern:
    if style is MQTT:
        return ANY_SEGMENT if text == "+" else (_parse_mqtt_literal(text),)
    if "*" not in text:
        return (_parse_segment(text, style),)
    if "**" in text:
        raise BadTopic(f"the pattern has '**' in {text!r}")
    return tuple(style.unescape(piece) for piece in text.split("*"))


def _parse_mqtt_literal(text: str) -> str:
    if "+" in text or "#" in text:
        raise BadTopic(f"in {text!r} a wildcard is not a whole level, or '#' is not the last level")
    return MQTT.unescape(text)


def _format_level(level: SegmentPattern, style: TopicStyle) -> str:
    if len(level) == 1:
        return _format_segment(level[0], style)
    return "+" if style is MQTT else "*".join(style.escape(piece) for piece in level)


_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_NONCHARACTERS = [
    *range(0xFDD0, 0xFDF0),
    *(plane + low for plane in range(0, 0x110000, 0x10000) for low in (0xFFFE, 0xFFFF)),
]


def _percent_encode(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


# A broker may close the connection for control characters and noncharacters (MQTT 3.1.1, 1.5.3), so all are escaped.
_MQTT_ESCAPES = {char: _percent_encode(char) for char in [*"/+#", *map(chr, _CONTROLS + _NONCHARACTERS)]}
_MQTT_UNESCAPES = {escape: char for char, escape in _MQTT_ESCAPES.items()}
_MQTT_ESCAPE_CODES = "|".join(escape[1:] for escape in _MQTT_UNESCAPES)
# `%` gets `25` only if it would be decoded as an escape, directly or after removal of such a `25`.
_MQTT_ESCAPE_PATTERN = re.compile(f"%(?=(?:25)*(?:{_MQTT_ESCAPE_CODES}))|[{re.escape(''.join(_MQTT_ESCAPES))}]")
_MQTT_UNESCAPE_PATTERN = re.compile(f"%25(?=(?:25)*(?:{_MQTT_ESCAPE_CODES}))|%(?:{_MQTT_ESCAPE_CODES})")


def _mqtt_escape(text: str) -> str:
    return _MQTT_ESCAPE_PATTERN.sub(lambda match: _MQTT_ESCAPES.get(match[0], "%25"), text)


def _mqtt_unescape(text: str) -> str:
    if "\0" in text:
        raise BadTopic("the topic contains NUL, which is not allowed in mqtt")
    return _MQTT_UNESCAPE_PATTERN.sub(lambda match: _MQTT_UNESCAPES.get(match[0], "%"), text)


_UMQ_ESCAPE_PATTERN = re.compile(r"[%.*\x00-\x1f\x7f-\x9f]")
_UMQ_INVALID_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UMQ_ESCAPE_SEQUENCE = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def _umq_escape(text: str) -> str:
    # Control characters, too: `hub:subscribe` and `hub:publish` may take a topic as a line.
    return _UMQ_ESCAPE_PATTERN.sub(lambda match: _percent_encode(match[0]), text)


def _umq_unescape(text: str) -> str:
    if _UMQ_INVALID_ESCAPE.search(text):
        raise BadTopic(f"the topic has '%' without two hexadecimal digits in {text!r}")
    return _UMQ_ESCAPE_SEQUENCE.sub(lambda match: _decode_hex(match[0].replace("%", "")), text)


def _decode_hex(digits: str) -> str:
    try:
        return bytes.fromhex(digits).decode()
    except UnicodeDecodeError:
        raise BadTopic(f"the topic has escapes that are not UTF-8: {digits}") from None


def _restricted_style(label: str, separator: str, letters: str, digits: str) -> TopicStyle:
    """Return the style of a protocol with topics of `letters` and `_` only."""
    unescaped = re.compile(f"_(?![{letters}])|(?<![{letters}])_|[^{letters}_]")
    well_formed = re.compile(f"(?:[{letters}]|__[{digits}]{{2}}|_(?!_))*")
    escapes = re.compile(f"(?:__[{digits}]{{2}})+")

    def escape(text: str) -> str:
        return unescaped.sub(lambda match: "".join(f"__{byte:02x}" for byte in match[0].encode()), text)

    def unescape(text: str) -> str:
        if well_formed.fullmatch(text) is None:
            raise BadTopic(f"{text!r} has invalid escapes or characters for {label}")
        return escapes.sub(lambda match: _decode_hex(match[0].replace("_", "")), text)

    return TopicStyle(label, separator, "*", escape, unescape, empty_segment="__00")


MQTT = TopicStyle("mqtt", "/", "+#", _mqtt_escape, _mqtt_unescape)
UMQ = TopicStyle("umq", ".", "*", _umq_escape, _umq_unescape)
LRPM = _restricted_style("lrpm", ".", "a-z0-9", "0-9a-f")
NQ = _restricted_style("nq", "-", "A-Za-z0-9", "0-9A-Fa-f")
