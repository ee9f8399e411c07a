"""Arguments and options that several commands share, and their shell completion."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

LOCAL_URLS = tuple(f"{protocol}+ws://localhost:7500" for protocol in ("lrpm", "umq", "umq36", "nq"))
OTHER_URLS = ("nq+http://localhost:7500", "nq+https://", "nq+zmq://localhost:7555", "mqtt-rpc+mqtt://localhost:1883")


def complete_urls(context: typer.Context, incomplete: str) -> list[str]:
    """Return saved contexts and prefixes of URLs for shell completion.

    With a default hub the URL may be omitted, so the word may also be the next argument of the command.
    """
    completions = [*complete_contexts(), *complete_schemes()]
    arguments = [parameter for parameter in context.command.params if parameter.param_type_name == "argument"]
    if context.params.get("url") and len(arguments) > 1 and "://" not in incomplete:
        completions += [item.value for item in arguments[1].shell_complete(context, incomplete)]
    return completions


def complete_schemes() -> list[str]:
    """Return prefixes of URLs for shell completion."""
    return [*LOCAL_URLS, *(url.replace("+ws://localhost:7500", "+wss://") for url in LOCAL_URLS), *OTHER_URLS]


def complete_contexts() -> list[str]:
    """Return the names of saved contexts for shell completion."""
    from fiveways.cli.context_store import names  # noqa: PLC0415

    return names()


def complete_methods(context: typer.Context, incomplete: str) -> list[str]:
    """Return the methods of the chosen hub for shell completion; none if the hub is not reachable."""
    from fiveways.cli.discover import method_names  # noqa: PLC0415

    return [name for name in method_names(*_connection_parameters(context)) if name.startswith(incomplete)]


def complete_queues(context: typer.Context, incomplete: str) -> list[str]:
    """Return the work queues of the chosen hub for shell completion; none if the hub is not reachable."""
    from fiveways.cli.queues import queue_names  # noqa: PLC0415

    return [name for name in queue_names(*_connection_parameters(context)) if name.startswith(incomplete)]


def _connection_parameters(context: typer.Context) -> tuple[str, str, Path | None, str, Path | None]:
    """Return the URL and the credentials, which may come from a saved context."""
    parameters = context.params
    return (
        parameters.get("url") or "",
        parameters.get("token") or "",
        parameters.get("token_file"),
        parameters.get("identity") or "",
        parameters.get("secret_file"),
    )


Url: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="The hub, with the protocol: lrpm+ws://host:port (?encoding=cbor), umq+ws://..., umq36+ws://..., "
        "nq+ws://..., nq+http://..., nq+zmq://...; or an MQTT broker: mqtt-rpc+mqtt://host:1883/Service; "
        "or the name of a saved context. If omitted: FIVEWAYS_URL, then the default context.",
        autocompletion=complete_urls,
    ),
]
Body: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="JSON", help="The body in JSON; - reads it from stdin, @FILE from a file.")
]
Queue: TypeAlias = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The work queue, such as thumbnails.", autocompletion=complete_queues)
]
Timeout: TypeAlias = Annotated[
    float, typer.Option(min=0.001, metavar="SECONDS", help="The timeout of the request, including the connection.")
]
Raw: TypeAlias = Annotated[
    bool, typer.Option("--raw", help="Print strings without quotes, bytes unencoded, and no colours.")
]
Attach: TypeAlias = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="A file to attach; repeatable.", exists=False)
]

Schema: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", help="A protobuf descriptor set of services behind an MQTT broker; repeatable.", exists=False
    ),
]

_AUTHENTICATION_PANEL = "Authentication"
Token: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="FIVEWAYS_TOKEN",
        metavar="TOKEN",
        help="The token. Visible in the process list: prefer the variable or --token-file.",
        rich_help_panel=_AUTHENTICATION_PANEL,
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A file with the token for authentication.", rich_help_panel=_AUTHENTICATION_PANEL
    ),
]
Identity: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="FIVEWAYS_IDENTITY",
        metavar="NAME",
        help="The identity for authentication with a secret (lrpm) or a password (MQTT brokers).",
        rich_help_panel=_AUTHENTICATION_PANEL,
    ),
]
SecretFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="FIVEWAYS_SECRET_FILE",
        metavar="FILE",
        help="A file with the secret or the password of --identity.",
        rich_help_panel=_AUTHENTICATION_PANEL,
    ),
]
