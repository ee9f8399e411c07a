"""The health of a hub, component by component."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Health(Enum):
    """The health of a component."""

    OK = 1.0
    DEGRADED = 0.5
    """The hub works without the component, and the operator should know. Other hubs share the problem."""
    UNHEALTHY = 0.0
    """The hub cannot serve new peers, and another hub may: a load balancer should send it none."""


class HealthCheck(NamedTuple):
    """The health of one component."""

    component: str
    health: Health
    text: str
    """The problem; empty if there is none."""


def verdict(checks: Iterable[HealthCheck]) -> tuple[Health, str]:
    """Return the worst health, and the problems in one line."""
    checks = list(checks)
    worst = min((check.health for check in checks), key=lambda health: health.value, default=Health.OK)
    texts = "; ".join(check.text for check in checks if check.health is not Health.OK)
    match worst:
        case Health.OK:
            return worst, "ok"
        case Health.DEGRADED:
            return worst, f"ok, but {texts}"
        case Health.UNHEALTHY:
            return worst, texts


def render_checks(checks: Iterable[HealthCheck]) -> str:
    """Return one line per component."""
    signs = {Health.OK: "[+]", Health.DEGRADED: "[!]", Health.UNHEALTHY: "[-]"}
    return "".join(f"{signs[check.health]} {check.component}: {check.text or 'ok'}\n" for check in checks)
