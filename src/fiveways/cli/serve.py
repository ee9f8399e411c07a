"""`fiveways serve`: a hub in this process."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from rich.console import Console

from fiveways.app.app import App
from fiveways.app.loader import LoadError, load_app
from fiveways.cli import logs
from fiveways.cli.errors import UsageError
from fiveways.cli.program import program_command
from fiveways.runtime import server
from fiveways.settings.load import (
    COMMAND_LINE_SOURCE,
    ExposedHubError,
    LoadedSettings,
    is_loopback,
    load_again,
    read_settings,
)
from fiveways.settings.sections import Settings
from fiveways.settings.sources import SettingsError


def settings_from_flags(
    host: str | None, port: int | None, journal: str | None, assignments: Sequence[str]
) -> dict[str, object]:
    """Return the settings of the command line.

    Raises:
        UsageError: an assignment is none.
    """
    given: dict[str, object] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or "." not in key:
            raise UsageError(f"--set takes section.key=value, not {assignment!r}")
        given[key.strip()] = value.strip()
    if host is not None:
        given["server.host"] = host
    if port is not None:
        given["server.port"] = port
    if journal is not None:
        given["journal.path"] = journal
    return given


def serve(config: Path | None, given: dict[str, object], application: str | None) -> None:
    """Run a hub until it is told to stop."""
    loaded = _load_settings(config, given)
    settings = loaded.settings
    logs.configure(settings.log)
    for warning in loaded.warnings:
        logs.LOG.warning(warning)
    app = None if application is None else _load(application)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, app))


def _load_settings(config: Path | None, given: dict[str, object]) -> LoadedSettings:
    try:
        return read_settings(config, os.environ, given)
    except ExposedHubError:
        # Nothing is misspelled: it is the hub that does not start so.
        raise
    except SettingsError as exc:
        if exc.source == COMMAND_LINE_SOURCE:
            raise UsageError(str(exc)) from exc
        raise


def _load(application: str) -> App:
    try:
        return load_app(application)
    except LoadError as exc:
        if exc.__cause__ is not None:
            # It was found, and is broken: what was typed is right.
            raise
        raise UsageError(str(exc)) from exc


async def _serve(settings: Settings, app: App | None) -> None:
    def started(running: server.Server) -> None:
        print_greeting(running.urls, settings, has_app=app is not None)

    await server.serve(settings, app, started=started, reload=lambda: load_again(settings))


def print_greeting(urls: Sequence[tuple[str, str]], settings: Settings, *, has_app: bool) -> None:
    """Say where the hub is, what to try first, and who cannot reach it."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]Fiveways is running[/bold] with pid {os.getpid()}. It answers:")
    for what, url in urls:
        console.print(f"  {what:8} {url}")
    first = _first_url(urls)
    # Who is asked for a token has one.
    token = " --token TOKEN" if settings.auth.anonymous == "never" else ""
    console.print("\nTry it from a second terminal:")
    console.print(f"""  {program_command()} call {first} hub.echo '"hello"'{token}""", markup=False)
    if has_app:
        console.print(f"  {program_command()} discover {first}{token}", markup=False)
    console.print(f"\n{_reachability_text(settings)}\n{_persistence_text(settings)}\nCtrl-C stops it.\n", markup=False)
    console.file.flush()


def _persistence_text(settings: Settings) -> str:
    """Say what becomes of requests that were accepted, and of work that waits, when the hub ends."""
    if settings.store.path:
        return f"What it accepts in NQ, work in queues and retained values are kept in {settings.store.path}."
    return "What it accepts in NQ, work in queues and retained values end with it; --set store.path=FILE keeps them."


def _first_url(urls: Sequence[tuple[str, str]]) -> str:
    """Return the shortest URL that works from this machine."""
    url = next(url for what, url in urls if what == "lrpm")
    parts = urlsplit(url)
    if parts.hostname in {"127.0.0.1", "0.0.0.0", "::"}:  # noqa: S104  it is only looked for
        return f"{parts.scheme}://localhost:{parts.port}"
    return url.removesuffix(parts.path)


def _reachability_text(settings: Settings) -> str:
    """Return who can come in, and what would have to be set for others."""
    server_settings, auth = settings.server, settings.auth
    if is_loopback(server_settings.host):
        return (
            f"Only programs on this machine can connect: the hub listens on {server_settings.host}.\n"
            'For others set server.host = "0.0.0.0" and an [[auth.identity]] with a token; see\n'
            "https://github.com/fiveways/fiveways/blob/main/docs/configuration.md"
        )
    if auth.anonymous == "always":
        return 'Everybody who can reach this machine is let in: auth.anonymous is "always".'
    names = ", ".join(each.name for each in auth.identity)
    return f"Who comes from another machine has to prove to be one of: {names}."
