"""Base classes of the commands: help without noise, required extras, and the choice of the hub.

Help shows no value behind a flag, because a flag takes none.
"""

from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from fiveways.cli import hub_choice
from fiveways.cli.errors import UsageError
from fiveways.extras import require

REQUIRED_EXTRAS: Final[Mapping[str, str]] = {
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


class Command(TyperCommand):
    """A command."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  typer keeps their types to itself
        """Run it, if the extra that it needs is installed."""
        if extra := REQUIRED_EXTRAS.get(ctx.command_path):
            require(extra, ctx.command_path)
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return its parameters."""
        return _hide_flag_metavars(super().get_params(ctx))


class HubCommand(Command):
    """A command with a hub as its first positional argument, `url`, which may be omitted.

    The first positional argument is the hub if it is a URL or the name of a saved context. Otherwise the hub of
    `FIVEWAYS_URL` or of the default context is inserted before it. The callback always receives a URL, and the
    credentials of the saved context unless flags or variables give others.
    """

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return its parameters, with an optional URL."""
        parameters = super().get_params(ctx)
        # In its signature the URL is required, because required arguments follow it.
        next(each for each in parameters if each.name == "url").required = False
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the command line, with the hub inserted if it is omitted."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        found, rest, _ = self.make_parser(ctx).parse_args(list(args))
        if found.get("help"):
            return super().parse_args(ctx, args)
        positionals = [text for each in arguments if isinstance(text := found.get(each.name), str)] + rest
        fallback = arguments[0].default if isinstance(arguments[0].default, str) else None
        try:
            if positionals and hub_choice.names_hub(positionals[0]):
                hub = hub_choice.parse_hub(positionals[0])
            else:
                hub = hub_choice.hub_if_omitted(positionals, len(arguments) - 1, fallback)
                # When the shell completes the first word, this word may still become the hub.
                if positionals or not ctx.resilient_parsing:
                    args = [hub.url, *args]
        except UsageError:
            if not ctx.resilient_parsing:
                raise
            return super().parse_args(ctx, args)
        left = super().parse_args(ctx, args)
        _apply_context(ctx.params, hub)
        return left


def _apply_context(params: dict[str, Any], hub: hub_choice.HubChoice) -> None:
    """Set the URL, and the credentials of a saved context where the user gave none."""
    params["url"] = hub.url
    if (context := hub.context) is None:
        return
    # Credentials are not mixed: another identity has another secret, and a token excludes both.
    if not any(params.get(name) for name in ("token", "token_file", "identity", "secret_file")):
        params.update(token_file=context.token_file, identity=context.identity, secret_file=context.secret_file)
    if "schema" in params and not params["schema"]:
        params["schema"] = list(context.schema)


class CommandGroup(TyperGroup):
    """A command with commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return its parameters."""
        return _hide_flag_metavars(super().get_params(ctx))


def _hide_flag_metavars(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters
