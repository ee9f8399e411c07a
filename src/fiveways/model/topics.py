"""Topics and patterns of topics: the hub's form, and each protocol's way to write it.

A topic is one or more segments, case kept, never folded; any text may be a segment, the empty one too, but a sole
empty segment is no topic. Every style can write every topic:

    MQTT   `a/b`   `/`, `+`, `#`, control characters and noncharacters in a segment are `%HH`, and a `%` that would
                   then be misread is `%25`; any other `%` is itself, so a topic of a broker keeps its name
    UMQ    `a.b`   `%`, `.`, `*` and control characters in a segment are `%HH`; any `%hh` that is UTF-8 is read
    LRPM   `a.b`   each byte outside `[a-z0-9]` is `__hh`, but `_` between two of these stays; the empty segment is
                   `__00`, and one of NULs only has one `__00` more than NULs; any `_` not before `_` is read as itself
    NQ     `a-b`   the same with `[A-Za-z0-9]`; `hh` is read in both cases
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
"""What one segment must look like: the literal pieces around each `*`; one piece is a literal, none is `ANY`."""

ANY_SEGMENT: SegmentPattern = ()
"""MQTT's `+`: any segment at all, also an empty one, which `*` is not."""
MAX_BYTES = 255
"""The longest topic: UTF-8, its segments joined by one byte each."""

# The longest spelling of a topic: 256 empty segments in lrpm, `__00` and a separator each.
_MAX_SPELLING_LENGTH = 5 * (MAX_BYTES + 1)
_CACHE_SIZE = 1024


class BadTopic(FivewaysError):
    """A text that is no topic, or no pattern; the message is a sentence for whoever wrote it."""


# Compared by identity: a style is half of the cache's key.
@dataclass(frozen=True, slots=True, eq=False)
class TopicStyle:
    """How one protocol writes topics and patterns."""

    label: str
    separator: str
    wildcards: str
    """The characters that make a text a pattern."""
    escape: Callable[[str], str]
    """Escape a literal text within a segment."""
    unescape: Callable[[str], str]
    """Undo `write`, or raise BadTopic."""
    empty_segment: str = ""
    """How an empty segment is written."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which topics a subscriber wants: `levels` for the first segments, and with `rest` any number more (MQTT's `#`).

    In every style, a wildcard that begins the first segment matches no topic that begins with `$`: MQTT brokers
    behave so, and a pattern must not match more or less for the protocol it was written in.
    """

    levels: tuple[SegmentPattern, ...]
    matches_deeper: bool = False

    @property
    def is_wildcard(self) -> bool:
        """Whether more than one topic can match."""
        return self.matches_deeper or any(len(level) != 1 for level in self.levels)

    @property
    def literal(self) -> Topic:
        """The one topic that can match; empty for a wildcard."""
        return () if self.is_wildcard else tuple(level[0] for level in self.levels)

    def matches(self, topic: Topic) -> bool:
        """Say whether the topic is one of those wanted."""
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
        """Whether it begins with a wildcard, so that it matches no topic that begins with `$`."""
        return not self.levels or not self.levels[0] or not self.levels[0][0]


def parse(text: str, style: TopicStyle) -> Topic:
    """Read a topic that someone publishes to.

    Raises:
        BadTopic: no topic is written so, or it is a pattern.
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
    """Write a topic in a protocol's own way; BadTopic if it is none."""
    return _spell(topic, style)


@lru_cache(maxsize=_CACHE_SIZE)
def _spell(topic: Topic, style: TopicStyle) -> str:
    _check_size(".".join(topic))
    return style.separator.join(_format_segment(segment, style) for segment in topic)


def parse_pattern(text: str, style: TopicStyle) -> Pattern:
    """Read what someone subscribes to: `+` and `#` in MQTT, `*` elsewhere; each is a plain character in the other.

    Raises:
        BadTopic: neither a topic nor a pattern is written so.
    """
    _check_text(text)
    segments = text.split(style.separator)
    rest = style is MQTT and segments[-1] == "#"
    if rest:
        segments.pop()
    pattern = Pattern(tuple(_parse_level(segment, style) for segment in segments), rest)
    _check_size(plain := _unescaped_text(pattern))
    _check_bidi_controls(plain)
    return pattern


def spell_pattern(pattern: Pattern, style: TopicStyle) -> str:
    """Write a pattern in a protocol's own way.

    MQTT has no part of a level: what it is given may match more, so filter what arrives by `pattern.matches`.

    Raises:
        Unrepresentable: MQTT's wildcards are not quite `*` (`+` matches an empty segment, `#` any number), and MQTT
            cannot ask for a part of a first segment that begins with `$`.
    """
    _check_size(_unescaped_text(pattern))
    segments = [_format_level(level, style) for level in pattern.levels]
    if style is MQTT:
        first = pattern.levels[0] if pattern.levels else ANY_SEGMENT
        if len(first) > 1 and first[0].startswith("$"):
            raise Unrepresentable(
                f"the pattern {_unescaped_text(pattern)!r} cannot be asked for in mqtt: '+' matches no '$' topics"
            )
        return "/".join([*segments, "#"] if pattern.matches_deeper else segments)
    if pattern.matches_deeper or ANY_SEGMENT in pattern.levels:
        raise Unrepresentable(f"the pattern {_unescaped_text(pattern)!r} has wildcards that {style.label} does not")
    return style.separator.join(segments)


def segment_matches(level: SegmentPattern, segment: str) -> bool:
    """Match one segment with a `*` between each two pieces, every `*` taking one character at least.

    The leftmost place for a piece leaves most room for the next, so nothing is tried twice.
    """
    last = level[-1]
    at, end = len(level[0]), len(segment) - len(last)
    if at >= end or not segment.startswith(level[0]) or not segment.endswith(last):
        return False
    for piece in level[1:-1]:
        found = segment.find(piece, at + 1, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at < end


def _unescaped_text(pattern: Pattern) -> str:
    """Write a pattern without escapes, for people and for measuring."""
    levels = ["+" if level == ANY_SEGMENT else "*".join(level) for level in pattern.levels]
    return ".".join([*levels, "#"] if pattern.matches_deeper else levels)


def _check_text(text: str) -> None:
    # Before the cache and before any work.
    if len(text) > _MAX_SPELLING_LENGTH:
        raise BadTopic(f"the topic is too long: {len(text)} characters")


def _check_size(joined: str) -> None:
    if not joined:
        raise BadTopic("the topic is empty")
    try:
        size = len(joined.encode())
    except UnicodeEncodeError:
        raise BadTopic("the topic holds half of a surrogate pair") from None
    if size > MAX_BYTES:
        raise BadTopic(f"the topic is too long: {size} of at most {MAX_BYTES} bytes")


def _check_bidi_controls(joined: str) -> None:
    if found := find_bidi_control(joined):
        raise BadTopic(f"the topic holds {found!r}, which no topic may")


def _parse_segment(text: str, style: TopicStyle) -> str:
    if not style.empty_segment:
        return style.unescape(text)
    if not text:
        raise BadTopic(f"the topic has an empty segment, which {style.label} writes {style.empty_segment!r}")
    segment = style.unescape(text)
    return segment if segment.strip("\0") else segment[1:]


def _format_segment(segment: str, style: TopicStyle) -> str:
    # `__00` is also how a NUL is written: with one more of them, a segment of nothing but NULs is not the empty one.
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
        raise BadTopic(f"in {text!r} a wildcard is only a part of its level, or '#' is not the last")
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


# Control characters and noncharacters may make a broker close the connection (MQTT 3.1.1, 1.5.3), so none is sent.
_MQTT_ESCAPES = {char: _percent_encode(char) for char in [*"/+#", *map(chr, _CONTROLS + _NONCHARACTERS)]}
_MQTT_UNESCAPES = {escape: char for char, escape in _MQTT_ESCAPES.items()}
_MQTT_ESCAPE_CODES = "|".join(escape[1:] for escape in _MQTT_UNESCAPES)
# `%` gets a `25` only where it would be read as an escape, itself or after losing such a `25`.
_MQTT_ESCAPE_PATTERN = re.compile(f"%(?=(?:25)*(?:{_MQTT_ESCAPE_CODES}))|[{re.escape(''.join(_MQTT_ESCAPES))}]")
_MQTT_UNESCAPE_PATTERN = re.compile(f"%25(?=(?:25)*(?:{_MQTT_ESCAPE_CODES}))|%(?:{_MQTT_ESCAPE_CODES})")


def _mqtt_escape(text: str) -> str:
    return _MQTT_ESCAPE_PATTERN.sub(lambda found: _MQTT_ESCAPES.get(found[0], "%25"), text)


def _mqtt_unescape(text: str) -> str:
    if "\0" in text:
        raise BadTopic("the topic holds a NUL, which mqtt has none of")
    return _MQTT_UNESCAPE_PATTERN.sub(lambda found: _MQTT_UNESCAPES.get(found[0], "%"), text)


_UMQ_ESCAPE_PATTERN = re.compile(r"[%.*\x00-\x1f\x7f-\x9f]")
_UMQ_INVALID_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UMQ_ESCAPE_SEQUENCE = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def _umq_escape(text: str) -> str:
    # Control characters too: `hub:subscribe` and `hub:publish` may take a topic as a line.
    return _UMQ_ESCAPE_PATTERN.sub(lambda found: _percent_encode(found[0]), text)


def _umq_unescape(text: str) -> str:
    if _UMQ_INVALID_ESCAPE.search(text):
        raise BadTopic(f"the topic has '%' without two hexadecimal digits in {text!r}")
    return _UMQ_ESCAPE_SEQUENCE.sub(lambda found: _decode_hex(found[0].replace("%", "")), text)


def _decode_hex(digits: str) -> str:
    try:
        return bytes.fromhex(digits).decode()
    except UnicodeDecodeError:
        raise BadTopic(f"the topic has escapes that are not UTF-8: {digits}") from None


def _restricted_style(label: str, separator: str, letters: str, digits: str) -> TopicStyle:
    """Make the style of a protocol whose topics have no more than `letters` and `_`."""
    to_write = re.compile(f"_(?![{letters}])|(?<![{letters}])_|[^{letters}_]")
    well_formed = re.compile(f"(?:[{letters}]|__[{digits}]{{2}}|_(?!_))*")
    escapes = re.compile(f"(?:__[{digits}]{{2}})+")

    def write(text: str) -> str:
        return to_write.sub(lambda found: "".join(f"__{byte:02x}" for byte in found[0].encode()), text)

    def read(text: str) -> str:
        if well_formed.fullmatch(text) is None:
            raise BadTopic(f"{text!r} is neither plain nor well escaped for {label}")
        return escapes.sub(lambda found: _decode_hex(found[0].replace("_", "")), text)

    return TopicStyle(label, separator, "*", write, read, empty_segment="__00")


MQTT = TopicStyle("mqtt", "/", "+#", _mqtt_escape, _mqtt_unescape)
UMQ = TopicStyle("umq", ".", "*", _umq_escape, _umq_unescape)
LRPM = _restricted_style("lrpm", ".", "a-z0-9", "0-9a-f")
NQ = _restricted_style("nq", "-", "A-Za-z0-9", "0-9A-Fa-f")
