"""The options that several commands share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

LOCAL_URLS = tuple(f"{protocol}+ws://localhost:7500" for protocol in ("lrpm", "umq", "umq36", "nq"))
OTHER_URLS = ("nq+http://localhost:7500", "nq+https://", "nq+zmq://localhost:7555", "mqtt-rpc+mqtt://localhost:1883")


def complete_urls(context: typer.Context, incomplete: str) -> list[str]:
    """Return saved contexts and the beginnings of URLs, for the shell to complete.

    If there is a default hub, the URL may be omitted: the word may be the command's next argument as well.
    """
    found = [*complete_contexts(), *complete_schemes()]
    arguments = [each for each in context.command.params if each.param_type_name == "argument"]
    if context.params.get("url") and len(arguments) > 1 and "://" not in incomplete:
        found += [item.value for item in arguments[1].shell_complete(context, incomplete)]
    return found


def complete_schemes() -> list[str]:
    """Return the beginnings of URLs, for the shell to complete."""
    return [*LOCAL_URLS, *(url.replace("+ws://localhost:7500", "+wss://") for url in LOCAL_URLS), *OTHER_URLS]


def complete_contexts() -> list[str]:
    """Return the names of saved contexts, for the shell to complete."""
    from fiveways.cli.context_store import names  # noqa: PLC0415

    return names()


def complete_methods(context: typer.Context, incomplete: str) -> list[str]:
    """Return the methods of the hub that the command line names, for the shell to complete; none if it is away."""
    from fiveways.cli.discover import method_names  # noqa: PLC0415

    return [name for name in method_names(*_connection_parameters(context)) if name.startswith(incomplete)]


def complete_queues(context: typer.Context, incomplete: str) -> list[str]:
    """Return the work queues of the hub that the command line names, for the shell to complete; none if it is away."""
    from fiveways.cli.queues import queue_names  # noqa: PLC0415

    return [name for name in queue_names(*_connection_parameters(context)) if name.startswith(incomplete)]


def _connection_parameters(context: typer.Context) -> tuple[str, str, Path | None, str, Path | None]:
    """Return the parameters of `access`: the hub's URL, and credentials, which may come from a saved context."""
    given = context.params
    return (
        given.get("url") or "",
        given.get("token") or "",
        given.get("token_file"),
        given.get("identity") or "",
        given.get("secret_file"),
    )


Url: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="The protocol and the hub: lrpm+ws://host:port (?encoding=cbor), umq+ws://..., umq36+ws://..., "
        "nq+ws://..., nq+http://..., nq+zmq://...; or a broker: mqtt-rpc+mqtt://host:1883/Service; "
        "or the name of a saved context. If omitted: FIVEWAYS_URL, then the default context.",
        autocompletion=complete_urls,
    ),
]
Body: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="JSON", help="A value in JSON; - reads it from stdin, @FILE from a file.")
]
Queue: TypeAlias = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue, such as thumbnails.", autocompletion=complete_queues)
]
Timeout: TypeAlias = Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="The longest wait.")]
Raw: TypeAlias = Annotated[
    bool, typer.Option("--raw", help="Print texts without quotes and bytes as they are; no colours.")
]
Attach: TypeAlias = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="A file to attach; repeatable.", exists=False)
]

Schema: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A descriptor set of services behind a broker; repeatable.", exists=False),
]

_AUTHENTICATION_PANEL = "Who you are"
Token: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="FIVEWAYS_TOKEN",
        metavar="TOKEN",
        help="The token that lets you in. Other users can read a command line: prefer the variable or --token-file.",
        rich_help_panel=_AUTHENTICATION_PANEL,
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file that holds the token.", rich_help_panel=_AUTHENTICATION_PANEL),
]
Identity: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="FIVEWAYS_IDENTITY",
        metavar="NAME",
        help="Your name, if you have a secret (lrpm), or a password (brokers).",
        rich_help_panel=_AUTHENTICATION_PANEL,
    ),
]
SecretFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="FIVEWAYS_SECRET_FILE",
        metavar="FILE",
        help="A file that holds your secret.",
        rich_help_panel=_AUTHENTICATION_PANEL,
    ),
]
