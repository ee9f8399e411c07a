"""The commands `fiveways context ...`: their options and help. `root` takes them up."""

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
are not saved. Commands take the name of a context in place of the URL.
If they have neither, they take FIVEWAYS_URL (a URL or a name of a context),
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
    str, typer.Argument(metavar="NAME", help="Up to 64 ASCII letters, digits, - and _, such as prod.")
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
            help="The URL of a client, such as lrpm+ws://localhost:7500.",
            autocompletion=options.complete_schemes,
        ),
    ],
    *,
    token_file: options.TokenFile = None,
    identity: Annotated[str, typer.Option(metavar="NAME", help="Your name, if you have a secret or a password.")] = "",
    secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file that holds your secret or password.")
    ] = None,
    schema: options.Schema = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a context of the same name.")] = False,
) -> None:
    """Save a context.

    Only the paths of the files are saved, not their content.
    The context's own file is readable by you alone.

    [bold]Examples[/bold]

      fiveways context add local lrpm+ws://localhost:7500
      fiveways context add prod umq+wss://hub.example.com --token-file t.key
    """
    path = context_store.path_of(name)
    _check(url, token_file, identity, secret_file)
    if context_store.is_saved(name) and not force:
        raise UsageError(f"there is a context {name!r} already; --force replaces it")
    files = tuple(_absolute(each) for each in schema or ())
    context = SavedContext(
        url,
        None if token_file is None else _absolute(token_file),
        identity,
        None if secret_file is None else _absolute(secret_file),
        files,
    )
    context_store.save(name, context)
    print(printable(f"Saved context {name} in {path}"))  # noqa: T201


@app.command("list", cls=Command)
def list_() -> None:
    """List all contexts and their URLs.

    An asterisk marks the default context.

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

    It holds the paths of credential files, not their content.

    [bold]Example[/bold]

      fiveways context show prod
    """
    print(context_store.load(name).as_toml(), end="")  # noqa: T201


@app.command(cls=Command)
def use(name: Name) -> None:
    """Choose the default context.

    Commands take it if they have no URL and FIVEWAYS_URL is not set.

    [bold]Example[/bold]

      fiveways context use prod
    """
    context_store.make_default(name)
    print(f"{name} is the default context now")  # noqa: T201
    _note_variable()


@app.command(cls=Command)
def remove(name: Name) -> None:
    """Delete a context.

    The credential files that it names are kept.

    [bold]Example[/bold]

      fiveways context remove prod
    """
    was_default = context_store.remove(name)
    print(f"Removed context {name}{'; there is no default context now' if was_default else ''}")  # noqa: T201


def _check(url: str, token_file: Path | None, identity: str, secret_file: Path | None) -> None:
    """Refuse a context that no command could use, before it is saved."""
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
        raise UsageError("--identity and --secret-file belong together")
    if token_file is not None and identity:
        raise UsageError("give --token-file, or --identity and --secret-file, not both")


def _absolute(path: Path) -> Path:
    """Return a path that is valid in every working directory; symbolic links are kept."""
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  Path.resolve follows links


def _note_variable() -> None:
    if os.environ.get(hub_choice.URL_VARIABLE, "").strip():
        print_stderr(f"fiveways context: {hub_choice.URL_VARIABLE} is set and wins over the default context")
