"""`fiveways serve`: run a hub in this process."""

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
    """Return the settings of the command line, by key.

    Raises:
        UsageError: an assignment is malformed.
    """
    overrides: dict[str, object] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or "." not in key:
            raise UsageError(f"--set takes section.key=value, not {assignment!r}")
        overrides[key.strip()] = value.strip()
    if host is not None:
        overrides["server.host"] = host
    if port is not None:
        overrides["server.port"] = port
    if journal is not None:
        overrides["journal.path"] = journal
    return overrides


def serve(config: Path | None, overrides: dict[str, object], application: str | None) -> None:
    """Run a hub until SIGINT or SIGTERM."""
    loaded = _load_settings(config, overrides)
    settings = loaded.settings
    logs.configure(settings.log)
    for warning in loaded.warnings:
        logs.LOG.warning(warning)
    app = None if application is None else _load(application)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, app))


def _load_settings(config: Path | None, overrides: dict[str, object]) -> LoadedSettings:
    try:
        return read_settings(config, os.environ, overrides)
    except ExposedHubError:
        # The command line is valid; the hub refuses this configuration.
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
            # The module exists but fails to import, so the command line is valid.
            raise
        raise UsageError(str(exc)) from exc


async def _serve(settings: Settings, app: App | None) -> None:
    def on_start(running: server.Server) -> None:
        print_greeting(running.urls, settings, has_app=app is not None)

    await server.serve(settings, app, started=on_start, reload=lambda: load_again(settings))


def print_greeting(urls: Sequence[tuple[str, str]], settings: Settings, *, has_app: bool) -> None:
    """Print the URLs of the hub, a first command, and the programs that can connect."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]Fiveways is running[/bold] with pid {os.getpid()}. Its URLs are:")
    for protocol, url in urls:
        console.print(f"  {protocol:8} {url}")
    first_url = _first_url(urls)
    # If the hub requires authentication, users have a token.
    token = " --token TOKEN" if settings.auth.anonymous == "never" else ""
    console.print("\nTry it from a second terminal:")
    console.print(f"""  {program_command()} call {first_url} hub.echo '"hello"'{token}""", markup=False)
    if has_app:
        console.print(f"  {program_command()} discover {first_url}{token}", markup=False)
    console.print(f"\n{_reachability_text(settings)}\n{_persistence_text(settings)}\nCtrl-C stops it.\n", markup=False)
    console.file.flush()


def _persistence_text(settings: Settings) -> str:
    """Return the sentence about durable requests, jobs and retained values after a restart."""
    if settings.store.path:
        return f"Durable NQ requests, jobs and retained values are stored in {settings.store.path}."
    return (
        "Durable NQ requests, jobs and retained values are lost when the hub stops; --set store.path=FILE stores them."
    )


def _first_url(urls: Sequence[tuple[str, str]]) -> str:
    """Return the shortest LRPM URL that works on this machine."""
    url = next(url for protocol, url in urls if protocol == "lrpm")
    parts = urlsplit(url)
    if parts.hostname in {"127.0.0.1", "0.0.0.0", "::"}:  # noqa: S104  only compared
        return f"{parts.scheme}://localhost:{parts.port}"
    return url.removesuffix(parts.path)


def _reachability_text(settings: Settings) -> str:
    """Return the sentence about clients that can connect, and the settings for others."""
    server_settings, auth = settings.server, settings.auth
    if is_loopback(server_settings.host):
        return (
            f"Only programs on this machine can connect: the hub listens on {server_settings.host}.\n"
            'To allow others, set server.host = "0.0.0.0" and an [[auth.identity]] with a token; see\n'
            "https://github.com/fiveways/fiveways/blob/main/docs/configuration.md"
        )
    if auth.anonymous == "always":
        return 'Any peer that can reach this machine can connect: auth.anonymous is "always".'
    names = ", ".join(identity.name for identity in auth.identity)
    return f"Peers on other machines must authenticate as one of: {names}."
