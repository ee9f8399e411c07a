import json
from contextlib import suppress
from operator import attrgetter, itemgetter
from time import perf_counter
from typing import TypedDict, cast

import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from fiveways.errors import Unrepresentable
from fiveways.model import topics
from fiveways.model.bidi_controls import find_bidi_control
from fiveways.model.topics import ANY_SEGMENT, LRPM, MQTT, NQ, UMQ, BadTopic, Pattern, SegmentPattern, Topic, TopicStyle
from tests.support.paths import VECTOR_FOLDER

STYLES = {style.label: style for style in (MQTT, UMQ, LRPM, NQ)}


class Vector(TypedDict):
    name: str
    style: str
    text: str
    topic: list[str]
    why: str


class Matching(TypedDict):
    name: str
    style: str
    pattern: str
    wildcard: bool
    yes: list[str]
    no: list[str]


Spelling = TypedDict("Spelling", {"name": str, "from": str, "pattern": str, "to": str, "text": str})

VECTORS: dict[str, object] = json.loads(VECTOR_FOLDER.joinpath("topics.json").read_text(encoding="utf-8"))
SPELLED = cast("list[dict[str, str]]", VECTORS["spelled"])
MATCHES = cast("list[Matching]", VECTORS["matches"])
by_name = itemgetter("name")
by_label = attrgetter("label")


def vectors(group: str) -> list[Vector]:
    return cast("list[Vector]", VECTORS[group])


def spellings(group: str) -> list[Spelling]:
    return cast("list[Spelling]", VECTORS[group])


NASTY = st.sampled_from(
    [*"aAzf09_-.:/%*+#$ \0\n", "%41", "%2F", "25", "2B", "C2", "%C2%80", "__41", "__", "\x80", "\uffff", "é"]
)
CHARACTERS = st.characters().filter(lambda character: not find_bidi_control(character))
SEGMENTS = st.lists(NASTY | CHARACTERS, max_size=8).map("".join)
PIECES = st.lists(NASTY | CHARACTERS, min_size=1, max_size=3).map("".join)
LEVELS: st.SearchStrategy[SegmentPattern] = st.one_of(
    SEGMENTS.map(lambda segment: (segment,)),
    st.just(ANY_SEGMENT),
    st.tuples(SEGMENTS, st.lists(PIECES, max_size=3), SEGMENTS).map(lambda ends: (ends[0], *ends[1], ends[2])),
)
ANY_STYLE = st.sampled_from(list(STYLES.values()))


def is_topic(topic: Topic) -> bool:
    joined = ".".join(topic)
    return joined != "" and not any("\ud800" <= char <= "\udfff" for char in joined)


TOPICS: st.SearchStrategy[Topic] = st.lists(SEGMENTS, min_size=1, max_size=5).map(tuple).filter(is_topic)
PATTERNS = st.builds(Pattern, st.lists(LEVELS, min_size=1, max_size=4).map(tuple), st.booleans())


@pytest.mark.parametrize("style", STYLES.values(), ids=by_label)
@pytest.mark.parametrize("vector", SPELLED, ids=by_name)
def test_topic_is_spelled_and_parsed(vector: dict[str, str], style: TopicStyle) -> None:
    topic = tuple(vector["topic"])
    assert topics.spell(topic, style) == vector[style.label]
    assert topics.parse(vector[style.label], style) == topic


@pytest.mark.parametrize("vector", vectors("also_read"), ids=by_name)
def test_other_spelling_is_parsed(vector: Vector) -> None:
    assert topics.parse(vector["text"], STYLES[vector["style"]]) == tuple(vector["topic"])


@pytest.mark.parametrize("vector", vectors("refused"), ids=by_name)
def test_topic_is_refused(vector: Vector) -> None:
    with pytest.raises(BadTopic) as refusal:
        topics.parse(vector["text"], STYLES[vector["style"]])
    assert vector["why"] in str(refusal.value)


@pytest.mark.parametrize("style", STYLES.values(), ids=by_label)
@pytest.mark.parametrize("topic", [(), ("",), ("\ud800",), ("x" * 256,), ("é" * 128,), ("",) * 257], ids=repr)
def test_invalid_topic_is_not_spelled(topic: Topic, style: TopicStyle) -> None:
    with pytest.raises(BadTopic):
        topics.spell(topic, style)


@pytest.mark.parametrize("style", STYLES.values(), ids=by_label)
@pytest.mark.parametrize("topic", [("x" * 255,), ("",) * 256, ("\0" * 255,), ("/" * 255,), ("*%" * 127,)], ids=repr)
def test_longest_topic_round_trips(topic: Topic, style: TopicStyle) -> None:
    assert topics.parse(topics.spell(topic, style), style) == topic


@pytest.mark.parametrize("style", STYLES.values(), ids=by_label)
@pytest.mark.parametrize("size", [256, 100_000])
def test_too_long_text_is_refused(size: int, style: TopicStyle) -> None:
    for act in (topics.parse, topics.parse_pattern):
        with pytest.raises(BadTopic):
            act("x" * size, style)


def test_refused_topic_is_not_cached() -> None:
    topics._parse.cache_clear()
    for text in ("x" * 256, "x" * 100_000, "a.*", "%", ""):
        with pytest.raises(BadTopic):
            topics.parse(text, UMQ)
    assert topics._parse.cache_info().currsize == 0


@given(TOPICS, ANY_STYLE)
def test_every_topic_round_trips(topic: Topic, style: TopicStyle) -> None:
    assert topics.parse(topics.spell(topic, style), style) == topic


@given(TOPICS)
def test_spellings_stay_within_their_alphabets(topic: Topic) -> None:
    assert set(topics.spell(topic, LRPM)) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.")
    assert topics.spell(topic, NQ).replace("-", "").replace("_", "").isalnum()
    assert topics.spell(topic, NQ).isascii()
    assert not set(topics.spell(topic, MQTT)) & set("+#\0\n\x80\uffff")
    assert not set(topics.spell(topic, UMQ)) & set("*\0\n\x80")


@given(st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join))
@example("%25")
@example("%252F%25%2f")
def test_mqtt_topic_without_special_characters_is_unchanged(text: str) -> None:
    try:
        topic = topics.parse(text, MQTT)
    except BadTopic:
        reject()
    if not set(text) & set(topics._MQTT_ESCAPES) - {"/"}:
        assert topics.spell(topic, MQTT) == text


@given(SEGMENTS, ANY_STYLE)
def test_every_text_is_a_topic_or_refused(text: str, style: TopicStyle) -> None:
    with suppress(BadTopic):
        assert topics.spell(topics.parse(text, style), style)
    with suppress(BadTopic):
        assert topics.parse_pattern(text, style).matches(("a", "b")) in {True, False}


@given(TOPICS, ANY_STYLE)
def test_topic_is_the_pattern_of_itself(topic: Topic, style: TopicStyle) -> None:
    pattern = topics.parse_pattern(topics.spell(topic, style), style)
    assert not pattern.is_wildcard
    assert pattern.matches(topic)


@pytest.mark.parametrize("vector", MATCHES, ids=by_name)
def test_pattern_matches(vector: Matching) -> None:
    style = STYLES[vector["style"]]
    pattern = topics.parse_pattern(vector["pattern"], style)
    assert pattern.is_wildcard == vector["wildcard"]
    for text in vector["yes"]:
        assert pattern.matches(topics.parse(text, style)), text
    for text in vector["no"]:
        assert not pattern.matches(topics.parse(text, style)), text


@pytest.mark.parametrize("vector", vectors("pattern_refused"), ids=by_name)
def test_pattern_is_refused(vector: Vector) -> None:
    with pytest.raises(BadTopic):
        topics.parse_pattern(vector["text"], STYLES[vector["style"]])


@pytest.mark.parametrize("vector", spellings("pattern_spelled"), ids=by_name)
def test_pattern_is_spelled(vector: Spelling) -> None:
    pattern = topics.parse_pattern(vector["pattern"], STYLES[vector["from"]])
    assert topics.spell_pattern(pattern, STYLES[vector["to"]]) == vector["text"]


@pytest.mark.parametrize("vector", spellings("pattern_not_spelled"), ids=by_name)
def test_pattern_cannot_be_spelled(vector: Spelling) -> None:
    pattern = topics.parse_pattern(vector["pattern"], STYLES[vector["from"]])
    with pytest.raises(Unrepresentable):
        topics.spell_pattern(pattern, STYLES[vector["to"]])


@given(PATTERNS, ANY_STYLE)
def test_spelled_pattern_round_trips(pattern: Pattern, style: TopicStyle) -> None:
    try:
        text = topics.spell_pattern(pattern, style)
    except (BadTopic, Unrepresentable):
        reject()
    if style is MQTT:
        pattern = Pattern(
            tuple(level if len(level) == 1 else ANY_SEGMENT for level in pattern.levels), pattern.matches_deeper
        )
    assert topics.parse_pattern(text, style) == pattern


@given(PATTERNS, TOPICS)
def test_mqtt_pattern_matches_at_least_the_original_topics(pattern: Pattern, topic: Topic) -> None:
    try:
        wider = topics.parse_pattern(topics.spell_pattern(pattern, MQTT), MQTT)
    except (BadTopic, Unrepresentable):
        reject()
    assert wider.matches(topic) or not pattern.matches(topic)


def reference_match(level: SegmentPattern, segment: str) -> bool:
    """Match by trying every position for every star."""
    if len(level) == 1:
        return segment == level[0]
    if not segment.startswith(level[0]):
        return False
    rest = segment[len(level[0]) :]
    return any(reference_match(level[1:], rest[taken:]) for taken in range(1, len(rest) + 1))


@given(
    st.text("ab", max_size=3), st.lists(st.text("ab", min_size=1, max_size=2), max_size=3), st.text("ab", max_size=3)
)
@example("ab", [], "ba")
def test_star_matches_like_the_reference_implementation(first: str, middle: list[str], last: str) -> None:
    level = (first, *middle, last)
    pattern = Pattern((level,))
    for number in range(1 << 9):
        segment = f"{number:b}".translate({ord("0"): "a", ord("1"): "b"})
        assert pattern.matches((segment,)) == reference_match(level, segment)


@pytest.mark.parametrize("text", ["*a*a*a*a*b", "*a" * 100 + "*b", "*aa" * 60 + "*b", "a*" * 100 + "b"], ids=len)
def test_hostile_pattern_is_matched_fast(text: str) -> None:
    pattern = topics.parse_pattern(text, UMQ)
    topic = ("a" * 255,)
    started_at = perf_counter()
    for _ in range(100):
        assert not pattern.matches(topic)
    # A hundred matches take some milliseconds; backtracking would exceed the timeout of the test run.
    assert perf_counter() - started_at < 60
