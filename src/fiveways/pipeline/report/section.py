"""A part of the page, and what in it deserves a look."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from fiveways.pipeline.report.markup import Content, Markup, join, tag

PROTOCOLS: Final = ("umq", "umq36", "lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq")
"""In the order in which they are shown; relatives stand together, and have shades of one colour."""
_OTHER_PROTOCOL_CLASSES: Final = ("c7", "c8")


class Severity(IntEnum):
    """How much something matters."""

    OK = 0
    NOTE = 1
    PROBLEM = 2


SEVERITY_ICONS: Final = {
    Severity.OK: ("✓", "fine"),
    Severity.NOTE: ("●", "note"),
    Severity.PROBLEM: ("▲", "problem"),
}


class Finding(NamedTuple):
    """Something that an operator should know before the rest: a sentence, and where in the page its numbers are."""

    severity: Severity
    sentence: Markup
    anchor: str


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page."""

    element_id: str
    title: str
    lead: str
    body: Markup
    findings: Sequence[Finding] = ()


def severity_icon(weight: Severity) -> Markup:
    """Return the sign for a weight, which has a shape and a name besides its colour."""
    sign, word = SEVERITY_ICONS[weight]
    return join(
        [tag("span", sign, class_=f"sign w{int(weight)}", aria_hidden="true"), tag("span", word, class_="unseen")]
    )


def empty_message(*sentences: Content) -> Markup:
    """Return what stands where there is nothing to show."""
    return join(tag("p", each, class_="empty") for each in sentences if each)


def sentence(*parts: Content) -> Markup:
    """Return a sentence made of words and names."""
    return join(parts)


def sort_protocols(protocols: Sequence[str]) -> list[str]:
    """Return protocols in the order of the page: ours, then others by name."""
    return sorted(set(protocols), key=lambda each: (_rank(each), each))


def _rank(protocol: str) -> int:
    return PROTOCOLS.index(protocol) if protocol in PROTOCOLS else len(PROTOCOLS)


def protocol_class(protocol: str, others: Sequence[str] = ()) -> str:
    """Return the class that colours a protocol."""
    if protocol in PROTOCOLS:
        return f"c{PROTOCOLS.index(protocol) + 1}"
    return (
        _OTHER_PROTOCOL_CLASSES[list(others).index(protocol) % 2] if protocol in others else _OTHER_PROTOCOL_CLASSES[-1]
    )
