"""Sections of the page and their findings."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from fiveways.pipeline.report.markup import Content, Markup, join, tag

PROTOCOLS: Final = ("umq", "umq36", "lrpm-json", "lrpm-cbor", "mqtt-rpc", "nq")
"""Known protocols in display order; related ones are neighbours and have shades of one colour."""
_OTHER_PROTOCOL_CLASSES: Final = ("c7", "c8")


class Severity(IntEnum):
    """Severity of a finding."""

    OK = 0
    NOTE = 1
    PROBLEM = 2


SEVERITY_ICONS: Final = {
    Severity.OK: ("✓", "fine"),
    Severity.NOTE: ("●", "note"),
    Severity.PROBLEM: ("▲", "problem"),
}


class Finding(NamedTuple):
    """Finding for the top of the page: a sentence, and the anchor of its details."""

    severity: Severity
    sentence: Markup
    anchor: str


@dataclass(frozen=True, slots=True)
class Section:
    """Section of the page."""

    element_id: str
    title: str
    lead: str
    body: Markup
    findings: Sequence[Finding] = ()


def severity_icon(severity: Severity) -> Markup:
    """Return the icon of a severity, which differs in shape and text besides its colour."""
    icon, text = SEVERITY_ICONS[severity]
    return join(
        [tag("span", icon, class_=f"sign w{int(severity)}", aria_hidden="true"), tag("span", text, class_="unseen")]
    )


def empty_message(*sentences: Content) -> Markup:
    """Return the message of a section without data."""
    return join(tag("p", text, class_="empty") for text in sentences if text)


def sentence(*parts: Content) -> Markup:
    """Join texts and names to a sentence."""
    return join(parts)


def sort_protocols(protocols: Sequence[str]) -> list[str]:
    """Sort protocols in display order, then unknown ones by name."""
    return sorted(set(protocols), key=lambda protocol: (_rank(protocol), protocol))


def _rank(protocol: str) -> int:
    return PROTOCOLS.index(protocol) if protocol in PROTOCOLS else len(PROTOCOLS)


def protocol_class(protocol: str, others: Sequence[str] = ()) -> str:
    """Return the CSS class with the colour of a protocol."""
    if protocol in PROTOCOLS:
        return f"c{PROTOCOLS.index(protocol) + 1}"
    return (
        _OTHER_PROTOCOL_CLASSES[list(others).index(protocol) % 2] if protocol in others else _OTHER_PROTOCOL_CLASSES[-1]
    )
