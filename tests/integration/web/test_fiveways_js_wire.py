"""fiveways.js writes and reads values, names and topics as Python does, by the same vectors and by chance."""

import json
import math
from random import Random

from fiveways.errors import FivewaysError, Malformed
from fiveways.model import names, topics
from fiveways.wire import base91
from fiveways.wire.payload import Json, Text, Value
from tests.integration.web.engines import Engine, run
from tests.support.paths import VECTOR_FOLDER

VECTORS = VECTOR_FOLDER
STYLES = {"umq": topics.UMQ, "lrpm": topics.LRPM, "nq": topics.NQ}


def vectors(name: str) -> "dict[str, list[dict[str, str]]]":
    read: dict[str, list[dict[str, str]]] = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    return read


def alike(value: object) -> object:
    """Return what JavaScript can tell of a value: whole floats are integers, and NaN is itself."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [alike(each) for each in value]
    if isinstance(value, dict):
        return {key: alike(each) for key, each in value.items()}
    return value


def chance(random: Random, depth: int = 0) -> object:
    """Return any value that both languages have."""
    kinds = 12 if depth < 4 else 9
    match random.randrange(kinds):
        case 0:
            return None
        case 1:
            return random.random() < 0.5
        case 2:
            return random.randint(-(2**70), 2**70)
        case 3:
            return random.randint(-20, 20)
        case 4:
            return random.choice([0.1, -1e-300, 1.5e300, math.nan, math.inf, -math.inf, random.random()])
        case 5 | 6:
            return "".join(random.choices('ab1"\\{}[] \n\0é😀\u2028$true', k=random.randrange(6)))
        case 7 | 8:
            return random.randbytes(random.randrange(20))
        case 9:
            return [chance(random, depth + 1) for _ in range(random.randrange(4))]
        case _:
            keys = ["a", "$base64", "$$base91", "$number", "", "__proto__", "0", "é"]
            return {random.choice(keys): chance(random, depth + 1) for _ in range(random.randrange(3))}


def check_bodies(engine: Engine, bodies: list[dict[str, str]]) -> int:
    """Compare what JavaScript makes of bodies with what Python does; say how many are refused by both."""
    refused = 0
    for given, made in zip(bodies, run(engine, "bodies", bodies=bodies), strict=True):
        payload = Text(given["body"]) if given["from"] == "text" else Json(given["body"].encode())
        try:
            value = alike(payload.value())
        except FivewaysError:
            assert "error" in made, given
            refused += 1
            continue
        assert "value" in made, (given, made)
        written = made["value"]
        assert alike(Text(written["text"]).value()) == value, given
        assert alike(Json(written["json"].encode()).value()) == value, given
        assert alike(Json(written["nq"].encode()).value()) == value, given
    return refused


def test_bodies_by_the_vectors(engine: Engine) -> None:
    entries = json.loads((VECTORS / "values.json").read_text(encoding="utf-8"))
    bodies = [{"from": each["from"], "body": each["body"]} for each in entries if each["from"] in {"text", "json"}]
    assert len(bodies) > 40
    assert check_bodies(engine, bodies) > 3


def test_bodies_by_chance(engine: Engine) -> None:
    random = Random(7)
    bodies = []
    for _ in range(500):
        value = Value(chance(random))
        bodies.append({"from": "text", "body": value.text()})
        bodies.append({"from": "json", "body": random.choice([value.json, value.nq])().decode()})
    assert check_bodies(engine, bodies) == 0


def test_texts_that_are_nearly_json(engine: Engine) -> None:
    texts = [
        "-",
        "01",
        "1.",
        ".5",
        "1e5",
        "1e999",
        "-1e999",
        "1E+2",
        "nul",
        "nulll",
        "true ",
        "\ttrue",
        "[1,]",
        "{1:2}",
    ]
    texts += [
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '"\n"',
        '"\\x"',
        "[" * 128 + "]" * 128,
        "[" * 129 + "]" * 129,
        "NaN",
        "\ufeff1",
    ]
    texts += [
        "9007199254740993",
        "-9007199254740993",
        '{"a":12345678901234567890,"b":"12345678901234567890"}',
        "1" * 400,
    ]
    texts += ['"' + "9" * 20 + '\\""', "[1234567890123456789012e3]", "0.12345678901234567890123", "[-0,0,-0.0]"]
    check_bodies(engine, [{"from": "text", "body": text} for text in texts])


def test_base91(engine: Engine) -> None:
    ruled = {"": "", "00": "!!", "ff": "l$", "0000": "!!!", "ffff": "#})", b"Hello".hex(): "q0R+Cq!"}
    ruled["0001020304050607"] = "m$bfm$rC7#"
    random = Random(91)
    given = [*ruled, *(random.randbytes(random.randrange(80)).hex() for _ in range(300))]
    written = run(engine, "base91", given=given)
    assert written[: len(ruled)] == list(ruled.values())
    assert written == [base91.encode(bytes.fromhex(each)) for each in given]
    assert run(engine, "unbase91", given=written) == [{"value": each} for each in given]
    strange = [
        "!",
        "~~",
        '"',
        "!!!!",
        "#}",
        "a b",
        "}}}}}",
        *("".join(random.choices(base91.ALPHABET, k=5)) for _ in range(200)),
    ]
    for text, read in zip(strange, run(engine, "unbase91", given=strange), strict=True):
        try:
            assert read == {"value": base91.decode(text).hex()}, text
        except Malformed:
            assert "error" in read, text


def test_names_by_the_vectors(engine: Engine) -> None:
    entries = vectors("names.json")
    good = [each for each in entries["folded"] if each["style"] in {"umq", "nq"}]
    bad = [each for each in entries["refused"] if each["style"] in {"umq", "nq"}]
    assert len(good) > 10
    assert len(bad) > 5
    folded = run(engine, "folded", given=[{"style": each["style"], "text": each["text"]} for each in good + bad])
    assert [each.get("value") for each in folded] == [each["folded"] for each in good] + [None] * len(bad)
    python = [names.fold(each["text"], names.UMQ if each["style"] == "umq" else names.NQ) for each in good]
    assert python == [each["value"] for each in folded[: len(good)]]


def test_topics_by_the_vectors(engine: Engine) -> None:
    entries = vectors("topics.json")
    given = [
        {"text": each[one], "from": one, "to": other, "wanted": each[other]}
        for each in entries["spelled"]
        for one in STYLES
        for other in STYLES
    ]
    given += [
        {
            "text": each["text"],
            "from": each["style"],
            "to": "umq",
            "wanted": topics.spell(tuple(each["topic"]), topics.UMQ),
        }
        for each in entries["also_read"]
        if each["style"] in STYLES
    ]
    written = run(engine, "topics_rewritten", given=given)
    assert [each.get("value") for each in written] == [each["wanted"] for each in given]
    bad = [
        {"text": each["text"], "from": each["style"], "to": "umq", "wild": False}
        for each in entries["refused"]
        if each["style"] in STYLES
    ]
    bad += [
        {"text": each["text"], "from": each["style"], "to": "umq", "wild": True}
        for each in entries["pattern_refused"]
        if each["style"] in STYLES
    ]
    assert len(bad) > 5
    for each, made in zip(bad, run(engine, "topics_rewritten", given=bad), strict=True):
        assert "error" in made, (each, made)
