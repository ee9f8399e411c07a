"""Whether a hub is well, part by part: what must work for it to be sent new peers, and what it goes on without."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Health(Enum):
    """How well a part is."""

    WELL = 1.0
    WORSE = 0.5
    """The hub goes on without it, and somebody should know. Other hubs are not better off: what they share is away."""
    BAD = 0.0
    """The hub cannot do what it promises, and another one may: it should get no new peers."""


class Finding(NamedTuple):
    """What was found about one part."""

    part: str
    health: Health
    text: str
    """Why, where it is not well."""


def verdict(findings: Iterable[Finding]) -> tuple[Health, str]:
    """Return how well all parts together are, and why in one line."""
    listed = list(findings)
    worst = min((each.health for each in listed), key=lambda health: health.value, default=Health.WELL)
    texts = "; ".join(each.text for each in listed if each.health is not Health.WELL)
    match worst:
        case Health.WELL:
            return worst, "ok"
        case Health.WORSE:
            return worst, f"ok, but {texts}"
        case Health.BAD:
            return worst, texts


def listed(findings: Iterable[Finding]) -> str:
    """Return a line for each part."""
    signs = {Health.WELL: "[+]", Health.WORSE: "[!]", Health.BAD: "[-]"}
    return "".join(f"{signs[each.health]} {each.part}: {each.text or 'ok'}\n" for each in findings)
