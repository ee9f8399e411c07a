"""Base classes of commands: checks for extras, the choice of the hub, and help without placeholders for flags."""

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
"""Extra of the package by command; other commands work with a plain installation."""


class Command(TyperCommand):
    """A command that checks for the extra that it requires."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  typer does not export these types
        """Run the command if its extra is installed."""
        if extra := REQUIRED_EXTRAS.get(ctx.command_path):
            require(extra, ctx.command_path)
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return the parameters of the command."""
        return _hide_flag_metavars(super().get_params(ctx))


class HubCommand(Command):
    """A command with a hub as its first positional argument, `url`, which may be omitted.

    The first positional argument is the hub if it is a URL or the name of a saved context. Otherwise the hub of
    `FIVEWAYS_URL` or of the default context is inserted before it. The callback always receives a URL. It also receives
    the credentials of the saved context, unless options or variables give others.
    """

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return the parameters of the command, with an optional URL."""
        parameters = super().get_params(ctx)
        # The signature requires the URL because required arguments follow it.
        next(parameter for parameter in parameters if parameter.name == "url").required = False
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the command line, with the hub inserted if it is omitted."""
        arguments = [argument for argument in self.get_params(ctx) if argument.param_type_name == "argument"]
        values, rest, _ = self.make_parser(ctx).parse_args(list(args))
        if values.get("help"):
            return super().parse_args(ctx, args)
        positionals = [text for argument in arguments if isinstance(text := values.get(argument.name), str)] + rest
        fallback = arguments[0].default if isinstance(arguments[0].default, str) else None
        try:
            if positionals and hub_choice.names_hub(positionals[0]):
                hub = hub_choice.parse_hub(positionals[0])
            else:
                hub = hub_choice.hub_if_omitted(positionals, len(arguments) - 1, fallback)
                # During shell completion the first word may still become the hub.
                if positionals or not ctx.resilient_parsing:
                    args = [hub.url, *args]
        except UsageError:
            if not ctx.resilient_parsing:
                raise
            return super().parse_args(ctx, args)
        remaining = super().parse_args(ctx, args)
        _apply_context(ctx.params, hub)
        return remaining


def _apply_context(params: dict[str, Any], hub: hub_choice.HubChoice) -> None:
    """Set the URL, and the credentials of a saved context if the command line has none."""
    params["url"] = hub.url
    if (context := hub.context) is None:
        return
    # Credentials are never mixed: a secret belongs to one identity, and a token excludes both.
    if not any(params.get(name) for name in ("token", "token_file", "identity", "secret_file")):
        params.update(token_file=context.token_file, identity=context.identity, secret_file=context.secret_file)
    if "schema" in params and not params["schema"]:
        params["schema"] = list(context.schema)


class CommandGroup(TyperGroup):
    """A command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """Return the parameters of the command."""
        return _hide_flag_metavars(super().get_params(ctx))


def _hide_flag_metavars(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
