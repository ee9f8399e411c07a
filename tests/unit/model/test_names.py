import json
import tracemalloc
import unicodedata
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import TypedDict

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from fiveways.errors import Unrepresentable
from fiveways.model import names
from fiveways.model.names import LRPM, MQTT, NQ, UMQ, UMQ36, BadName, NameStyle
from fiveways.wire import base36
from tests.support.paths import VECTOR_FOLDER

STYLES = {style.label: style for style in (UMQ, UMQ36, LRPM, MQTT, NQ)}


class Vector(TypedDict):
    name: str
    style: str
    text: str
    folded: str
    route: bool
    why: str


VECTORS: dict[str, list[Vector]] = json.loads(VECTOR_FOLDER.joinpath("names.json").read_text(encoding="utf-8"))

UNUSUAL = st.sampled_from(
    [
        *"aAbZ09_-.:/ THJWY<",
        "hub",
        "HTTP",
        "fiveways",
        "\u0300",
        "\u0308",
        "\u030c",
        "\u0323",
        "\u0338",
        "\u212a",
        "\u212b",
        "\u037e",
        "\u1e9e",
        "\u0130",
        "\U0001d160",
        "\u1fef",
    ]
)
TEXTS = st.lists(UNUSUAL | st.characters(), min_size=1, max_size=20).map("".join)
ANY_STYLE = st.sampled_from(list(STYLES.values()))


def try_fold(text: str, style: NameStyle) -> str:
    try:
        return names.fold(text, style)
    except BadName:
        reject()


@pytest.mark.parametrize("vector", VECTORS["folded"], ids=itemgetter("name"))
def test_name_is_folded(vector: Vector) -> None:
    assert names.fold(vector["text"], STYLES[vector["style"]]) == vector["folded"]


@pytest.mark.parametrize("style", STYLES.values(), ids=attrgetter("label"))
@pytest.mark.parametrize("vector", VECTORS["folded"], ids=itemgetter("name"))
def test_folded_name_folds_to_itself_in_every_style(vector: Vector, style: NameStyle) -> None:
    assert names.fold(vector["folded"], style) == vector["folded"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=itemgetter("name"))
def test_name_is_refused(vector: Vector) -> None:
    with pytest.raises(BadName) as refusal:
        names.fold(vector["text"], STYLES[vector["style"]])
    assert vector["why"] in str(refusal.value)


@pytest.mark.parametrize("vector", VECTORS["offered"], ids=itemgetter("name"))
def test_registration_is_folded(vector: Vector) -> None:
    registration = names.fold_registration(vector["text"], STYLES[vector["style"]])
    assert registration == (vector["folded"], vector["route"])


@pytest.mark.parametrize("vector", VECTORS["not_offered"], ids=itemgetter("name"))
def test_registration_is_refused(vector: Vector) -> None:
    with pytest.raises(BadName) as refusal:
        names.fold_registration(vector["text"], STYLES[vector["style"]])
    assert vector["why"] in str(refusal.value)


@pytest.mark.parametrize("vector", VECTORS["spelled"], ids=itemgetter("name"))
def test_folded_name_is_spelled(vector: Vector) -> None:
    style = STYLES[vector["style"]]
    assert names.spell(vector["folded"], style) == vector["text"]
    assert names.fold(vector["text"], style) == vector["folded"]


@pytest.mark.parametrize("vector", VECTORS["not_spelled"], ids=itemgetter("name"))
def test_folded_name_cannot_be_spelled(vector: Vector) -> None:
    with pytest.raises(Unrepresentable):
        names.spell(vector["folded"], STYLES[vector["style"]])


def test_reserved_prefix_is_folded() -> None:
    assert names.fold_prefix("hub:", UMQ) == ("hub", True)
    assert names.fold_prefix("hub:ping", UMQ) == ("hub.ping", False)


def test_mqtt_names_are_a_topic_and_a_type() -> None:
    assert names.fold_mqtt("/my-cool-service", "SayHello") == "my_cool_service.say_hello"
    assert names.spell_mqtt("a.b.c") == ("/a.b", "c")
    assert names.spell_mqtt("ping") == ("/fiveways", "ping")
    assert names.spell_mqtt("hub.ping") == ("/hub", "ping")


@pytest.mark.parametrize(("topic", "kind"), [("/a", "b/c"), ("", "b"), ("/", "b"), ("/a", ""), ("/a/", "b")])
def test_invalid_mqtt_topic_and_type_are_refused(topic: str, kind: str) -> None:
    with pytest.raises(BadName):
        names.fold_mqtt(topic, kind)


def test_mqtt_default_topic_is_no_prefix() -> None:
    with pytest.raises(Unrepresentable):
        names.spell_prefix("fiveways", MQTT)


@pytest.mark.parametrize("style", STYLES.values(), ids=attrgetter("label"))
@pytest.mark.parametrize("folded", ["account", "bank.account", "fiveways.a", "x" * 254], ids=len)
def test_spelled_prefix_folds_back(folded: str, style: NameStyle) -> None:
    assert names.fold_prefix(names.spell_prefix(folded, style), style) == (folded, True)


@pytest.mark.parametrize("style", STYLES.values(), ids=attrgetter("label"))
def test_longest_name_in_every_style(style: NameStyle) -> None:
    longest = "x" * 255
    assert names.fold(longest, style) == longest
    assert names.fold(names.spell(longest, style), style) == longest


@pytest.mark.parametrize("style", STYLES.values(), ids=attrgetter("label"))
@pytest.mark.parametrize("text", ["x" * 256, "é" * 128, "aB" * 100, "x" * 100_000, "\ud800" * 255])
def test_too_long_name_in_every_style(text: str, style: NameStyle) -> None:
    for act in (names.fold, names.fold_registration):
        with pytest.raises(BadName):
            act(text, style)
    with pytest.raises(BadName):
        names.fold_prefix(text + style.joiner, style)


def test_refused_name_is_not_cached() -> None:
    names._fold.cache_clear()
    for text in ("x" * 256, "x" * 100_000, "a..b", "a*", "\ud800"):
        with pytest.raises(BadName):
            names.fold(text, UMQ)
    assert names._fold.cache_info().currsize == 0


def test_cache_is_bounded() -> None:
    names._fold.cache_clear()
    for number in range(10_000):
        names.fold(f"method{number}", UMQ)
    assert names._fold.cache_info().currsize <= 4096


@given(TEXTS, ANY_STYLE, ANY_STYLE)
def test_fold_is_stable_across_styles(text: str, style: NameStyle, other: NameStyle) -> None:
    folded = try_fold(text, style)
    assert names.fold(folded, other) == folded


@given(TEXTS, ANY_STYLE)
def test_folded_name_is_composed_and_within_limits(text: str, style: NameStyle) -> None:
    folded = try_fold(text, style)
    assert unicodedata.is_normalized("NFC", folded)
    assert len(folded.encode()) <= names.MAX_BYTES
    assert all(folded.split("."))


@given(TEXTS, ANY_STYLE)
def test_composed_and_decomposed_texts_fold_to_one_name(text: str, style: NameStyle) -> None:
    folded = try_fold(text, style)
    assert try_fold(unicodedata.normalize("NFD", text), style) == folded


@given(TEXTS, ANY_STYLE, ANY_STYLE)
def test_spelled_name_folds_back(text: str, style: NameStyle, other: NameStyle) -> None:
    folded = try_fold(text, style)
    try:
        spelled = names.spell(folded, other)
    except Unrepresentable:
        assert other in {LRPM, NQ}
    else:
        assert names.fold(spelled, other) == folded


@given(TEXTS, ANY_STYLE)
def test_every_text_is_folded_or_refused(text: str, style: NameStyle) -> None:
    for act in (names.fold, names.fold_prefix, names.fold_registration):
        with suppress(BadName):
            assert act(text, style)


def test_callback_tokens_are_not_cached() -> None:
    tokens = [base36.write(36**11 + number).lower() for number in range(3000)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for token in tokens:
            assert names.fold(f"callback.{token}", LRPM) == f"callback.{token}"
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000
