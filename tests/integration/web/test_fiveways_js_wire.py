"""fiveways.js reads and writes values, names and topics as Python does, by the same vectors and random values."""

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


def normalize(value: object) -> object:
    """Return a value as JavaScript has it: whole floats become integers, NaN becomes a text."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [normalize(item) for item in value]
    if isinstance(value, dict):
        return {key: normalize(item) for key, item in value.items()}
    return value


def random_value(random: Random, depth: int = 0) -> object:
    """Return a random value that both languages have."""
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
            return [random_value(random, depth + 1) for _ in range(random.randrange(4))]
        case _:
            keys = ["a", "$base64", "$$base91", "$number", "", "__proto__", "0", "é"]
            return {random.choice(keys): random_value(random, depth + 1) for _ in range(random.randrange(3))}


def check_bodies(engine: Engine, bodies: list[dict[str, str]]) -> int:
    """Compare JavaScript's results for bodies with Python's; return the number that both refuse."""
    refused = 0
    for entry, result in zip(bodies, run(engine, "bodies", bodies=bodies), strict=True):
        payload = Text(entry["body"]) if entry["from"] == "text" else Json(entry["body"].encode())
        try:
            value = normalize(payload.value())
        except FivewaysError:
            assert "error" in result, entry
            refused += 1
            continue
        assert "value" in result, (entry, result)
        written = result["value"]
        assert normalize(Text(written["text"]).value()) == value, entry
        assert normalize(Json(written["json"].encode()).value()) == value, entry
        assert normalize(Json(written["nq"].encode()).value()) == value, entry
    return refused


def test_bodies_of_the_vectors(engine: Engine) -> None:
    entries = json.loads((VECTORS / "values.json").read_text(encoding="utf-8"))
    bodies = [{"from": each["from"], "body": each["body"]} for each in entries if each["from"] in {"text", "json"}]
    assert len(bodies) > 40
    assert check_bodies(engine, bodies) > 3


def test_random_bodies(engine: Engine) -> None:
    random = Random(7)
    bodies = []
    for _ in range(500):
        value = Value(random_value(random))
        bodies.append({"from": "text", "body": value.text()})
        bodies.append({"from": "json", "body": random.choice([value.json, value.nq])().decode()})
    assert check_bodies(engine, bodies) == 0


def test_texts_similar_to_json(engine: Engine) -> None:
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
    fixed = {"": "", "00": "!!", "ff": "l$", "0000": "!!!", "ffff": "#})", b"Hello".hex(): "q0R+Cq!"}
    fixed["0001020304050607"] = "m$bfm$rC7#"
    random = Random(91)
    blobs = [*fixed, *(random.randbytes(random.randrange(80)).hex() for _ in range(300))]
    written = run(engine, "base91", given=blobs)
    assert written[: len(fixed)] == list(fixed.values())
    assert written == [base91.encode(bytes.fromhex(each)) for each in blobs]
    assert run(engine, "unbase91", given=written) == [{"value": each} for each in blobs]
    invalid = [
        "!",
        "~~",
        '"',
        "!!!!",
        "#}",
        "a b",
        "}}}}}",
        *("".join(random.choices(base91.ALPHABET, k=5)) for _ in range(200)),
    ]
    for text, decoded in zip(invalid, run(engine, "unbase91", given=invalid), strict=True):
        try:
            assert decoded == {"value": base91.decode(text).hex()}, text
        except Malformed:
            assert "error" in decoded, text


def test_names_of_the_vectors(engine: Engine) -> None:
    entries = vectors("names.json")
    good = [entry for entry in entries["folded"] if entry["style"] in {"umq", "nq"}]
    bad = [entry for entry in entries["refused"] if entry["style"] in {"umq", "nq"}]
    assert len(good) > 10
    assert len(bad) > 5
    folded = run(engine, "folded", given=[{"style": each["style"], "text": each["text"]} for each in good + bad])
    assert [each.get("value") for each in folded] == [each["folded"] for each in good] + [None] * len(bad)
    python = [names.fold(each["text"], names.UMQ if each["style"] == "umq" else names.NQ) for each in good]
    assert python == [each["value"] for each in folded[: len(good)]]


def test_topics_of_the_vectors(engine: Engine) -> None:
    entries = vectors("topics.json")
    cases = [
        {"text": entry[source], "from": source, "to": target, "wanted": entry[target]}
        for entry in entries["spelled"]
        for source in STYLES
        for target in STYLES
    ]
    cases += [
        {
            "text": entry["text"],
            "from": entry["style"],
            "to": "umq",
            "wanted": topics.spell(tuple(entry["topic"]), topics.UMQ),
        }
        for entry in entries["also_read"]
        if entry["style"] in STYLES
    ]
    written = run(engine, "topics_rewritten", given=cases)
    assert [entry.get("value") for entry in written] == [entry["wanted"] for entry in cases]
    bad = [
        {"text": entry["text"], "from": entry["style"], "to": "umq", "wild": False}
        for entry in entries["refused"]
        if entry["style"] in STYLES
    ]
    bad += [
        {"text": entry["text"], "from": entry["style"], "to": "umq", "wild": True}
        for entry in entries["pattern_refused"]
        if entry["style"] in STYLES
    ]
    assert len(bad) > 5
    for entry, result in zip(bad, run(engine, "topics_rewritten", given=bad), strict=True):
        assert "error" in result, (entry, result)
