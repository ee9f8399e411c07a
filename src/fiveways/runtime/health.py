"""Whether a hub is well, part by part: what must work for it to be sent new peers, and what it goes on without."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Health(Enum):
    """How well a part is."""

    OK = 1.0
    DEGRADED = 0.5
    """The hub goes on without it, and somebody should know. Other hubs are not better off: what they share is away."""
    UNHEALTHY = 0.0
    """The hub cannot do what it promises, and another one may: it should get no new peers."""


class HealthCheck(NamedTuple):
    """What was found about one part."""

    component: str
    health: Health
    text: str
    """Why, where it is not well."""


def verdict(findings: Iterable[HealthCheck]) -> tuple[Health, str]:
    """Return how well all parts together are, and why in one line."""
    listed = list(findings)
    worst = min((each.health for each in listed), key=lambda health: health.value, default=Health.OK)
    texts = "; ".join(each.text for each in listed if each.health is not Health.OK)
    match worst:
        case Health.OK:
            return worst, "ok"
        case Health.DEGRADED:
            return worst, f"ok, but {texts}"
        case Health.UNHEALTHY:
            return worst, texts


def render_checks(findings: Iterable[HealthCheck]) -> str:
    """Return a line for each part."""
    signs = {Health.OK: "[+]", Health.DEGRADED: "[!]", Health.UNHEALTHY: "[-]"}
    return "".join(f"{signs[each.health]} {each.component}: {each.text or 'ok'}\n" for each in findings)
