"""Help without noise: a flag takes no value, so none is shown behind it."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Verb(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401  typer keeps their types to itself
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
