"""Contrast of the colours in light and dark mode."""

import re
from itertools import pairwise, product

import pytest

from fiveways.pipeline.report.script import SCRIPT
from fiveways.pipeline.report.style import STYLE

LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part))
    for part in STYLE.split("@media (prefers-color-scheme: dark)", 1)
)
SCHEMES = {"light": LIGHT, "dark": DARK}


def brightness(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_sufficient_contrast(scheme: str) -> None:
    colours = SCHEMES[scheme]
    pairs = [*product(("ink", "soft"), ("page", "raised")), *product(("accent", "bad", "note", "fine"), ("page",))]
    pairs += [("on-low", f"h{level}") for level in range(1, 5)] + [("on-high", f"h{level}") for level in (5, 6)]
    weak = [pair for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < 4.5]
    assert weak == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_lines_and_neighbouring_layers_have_sufficient_contrast(scheme: str) -> None:
    colours = SCHEMES[scheme]
    assert [name for name in ("p50", "p95", "p99", "bad") if contrast(colours[name], colours["page"]) < 3] == []
    layers = [colours[f"c{number}"] for number in range(1, 9)]
    assert [pair for pair in pairwise(layers) if contrast(*pair) < 1.1] == []


def test_style_and_script_contain_no_closing_tags() -> None:
    assert "<" not in STYLE
    assert "</" not in SCRIPT
    assert "innerHTML" not in SCRIPT
