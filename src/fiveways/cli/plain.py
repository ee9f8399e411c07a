"""Commands: help without noise (a flag takes no value, so none is shown behind it), and the extras that they need."""

from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from fiveways.extras import require

EXTRAS: Final[Mapping[str, str]] = {
    "fiveways demo": "hub",
    "fiveways pipeline run": "pipeline",
    "fiveways pipeline tables": "pipeline",
    "fiveways pipeline watch": "pipeline",
    "fiveways replay": "journal",
    "fiveways report": "journal",
    "fiveways serve": "hub",
    "fiveways sql": "pipeline",
    "fiveways tail": "journal",
    "fiveways trace": "journal",
}
"""The extra by command; all others need no more than a client."""


class Verb(TyperCommand):
    """A command."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  typer keeps their types to itself
        """Run it, if the extra that it needs is installed."""
        if extra := EXTRAS.get(ctx.command_path):
            require(extra, ctx.command_path)
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return its parameters."""
        return _plain(super().get_params(ctx))


class Verbs(TyperGroup):
    """A command with commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return its parameters."""
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters
