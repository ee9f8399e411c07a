"""Options and help of `fiveways context ...`."""

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fiveways.cli import context_store, hub_choice, options
from fiveways.cli.commands import Command, CommandGroup
from fiveways.cli.context_store import SavedContext
from fiveways.cli.errors import UsageError, print_stderr, printable

app = typer.Typer(
    cls=CommandGroup,
    help="""Save the URLs of hubs under names, to use them in other commands.

A context is a URL and the paths of credential files. Tokens and secrets
are not saved. Commands accept the name of a context in place of the URL.
If both are omitted, they use FIVEWAYS_URL (a URL or the name of a context),
then the default context.

[bold]Examples[/bold]

  fiveways context add prod lrpm+wss://hub.example.com --token-file t.key
  fiveways call prod math.add '\\[2, 3]'
  fiveways context use prod
  fiveways call math.add '\\[2, 3]'
""",
    no_args_is_help=True,
)

NewName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of the context: up to 64 ASCII letters, digits, - and _, such as prod."
    ),
]
Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a saved context.", autocompletion=options.complete_contexts)
]


@app.command(cls=Command)
def add(
    name: NewName,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The URL of the hub with the protocol, such as lrpm+ws://localhost:7500.",
            autocompletion=options.complete_schemes,
        ),
    ],
    *,
    token_file: options.TokenFile = None,
    identity: Annotated[
        str, typer.Option(metavar="NAME", help="The identity for authentication with a secret or a password.")
    ] = "",
    secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the secret or the password of --identity.")
    ] = None,
    schema: options.Schema = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing context.")] = False,
) -> None:
    """Save a context.

    Only the paths of credential files are saved, not their content. The file of
    the context is readable only by its owner.

    [bold]Examples[/bold]

      fiveways context add local lrpm+ws://localhost:7500
      fiveways context add prod umq+wss://hub.example.com --token-file t.key
    """
    context_path = context_store.path_of(name)
    _check(url, token_file, identity, secret_file)
    if context_store.is_saved(name) and not force:
        raise UsageError(f"context {name!r} already exists; --force replaces it")
    schema_files = tuple(_absolute(file) for file in schema or ())
    context = SavedContext(
        url,
        None if token_file is None else _absolute(token_file),
        identity,
        None if secret_file is None else _absolute(secret_file),
        schema_files,
    )
    context_store.save(name, context)
    print(printable(f"Saved context {name} in {context_path}"))  # noqa: T201


@app.command("list", cls=Command)
def list_() -> None:
    """List all contexts and their URLs.

    The default context is marked with *.

    [bold]Example[/bold]

      fiveways context list
    """
    names = context_store.names()
    default = context_store.default_name()
    width = max(map(len, names), default=0)
    broken: UsageError | None = None
    for name in names:
        try:
            url = context_store.load(name).url
        except UsageError as exc:
            broken = broken or exc
            url = "(broken)"
        print(f"{'*' if name == default else ' '} {name:{width}}  {printable(url)}")  # noqa: T201
    _note_variable()
    if broken is not None:
        raise broken


@app.command(cls=Command)
def show(name: Name) -> None:
    """Show a context as TOML.

    A context contains the paths of credential files, not their content.

    [bold]Example[/bold]

      fiveways context show prod
    """
    print(context_store.load(name).as_toml(), end="")  # noqa: T201


@app.command(cls=Command)
def use(name: Name) -> None:
    """Choose the default context.

    Commands use it if the URL is omitted and FIVEWAYS_URL is not set.

    [bold]Example[/bold]

      fiveways context use prod
    """
    context_store.make_default(name)
    print(f"{name} is now the default context")  # noqa: T201
    _note_variable()


@app.command(cls=Command)
def remove(name: Name) -> None:
    """Delete a context.

    Its credential files are kept.

    [bold]Example[/bold]

      fiveways context remove prod
    """
    was_default = context_store.remove(name)
    print(f"Removed context {name}{'; there is no default context any more' if was_default else ''}")  # noqa: T201


def _check(url: str, token_file: Path | None, identity: str, secret_file: Path | None) -> None:
    """Raise UsageError for a context that no command could use."""
    from fiveways.client.urls import BadUrl, is_mqtt, parse, parse_mqtt  # noqa: PLC0415

    if reason := context_store.check_url(url):
        raise UsageError(reason)
    try:
        if is_mqtt(url):
            parse_mqtt(url)
        else:
            parse(url)
    except BadUrl as exc:
        raise UsageError(str(exc)) from exc
    if bool(identity) != (secret_file is not None):
        raise UsageError("--identity and --secret-file must be given together")
    if token_file is not None and identity:
        raise UsageError("--token-file cannot be combined with --identity and --secret-file")


def _absolute(path: Path) -> Path:
    """Return an absolute path; symbolic links are kept."""
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  Path.resolve follows links


def _note_variable() -> None:
    if os.environ.get(hub_choice.URL_VARIABLE, "").strip():
        print_stderr(f"fiveways context: {hub_choice.URL_VARIABLE} is set and overrides the default context")
