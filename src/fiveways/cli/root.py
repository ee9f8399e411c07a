"""Definition of the program `fiveways`: commands, options and help. Each command is implemented in its own module."""

import os
import re
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from fiveways.cli import (
    clock,
    context,
    demo,
    journal_commands,
    options,
    pipeline_commands,
    queue_commands,
    report,
    store,
    traffic,
)
from fiveways.cli.commands import Command, CommandGroup, HubCommand
from fiveways.cli.errors import ExitCode, OutputClosed, UsageError, report_error, report_usage_error
from fiveways.cli.output_encoding import tolerate_any_terminal

app = typer.Typer(
    name="fiveways",
    cls=CommandGroup,
    help="""A messaging hub for UMQ, UMQ36, LRPM, RPC over MQTT and NQ.

[bold]First steps[/bold]

A demonstration of all protocols, in one minute:

  fiveways demo

A hub and a client, in two terminals:

  fiveways serve
  fiveways call lrpm+ws://localhost:7500 hub.echo '"hello"'
""",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong command line, 124 timeout. `check` has exit codes of its own.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(
    cls=CommandGroup,
    help="""Check a configuration file, or show the settings.

Documentation: https://github.com/fiveways/fiveways/blob/main/docs/configuration.md

[bold]Example[/bold]

  fiveways config check fiveways.toml
""",
    no_args_is_help=True,
)
app.add_typer(config_app, name="config")
app.add_typer(context.app, name="context")
app.add_typer(pipeline_commands.app, name="pipeline")
app.add_typer(store.app, name="store")
_NEGATIVE = re.compile(r"-\d")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, print any error as one sentence, and return the exit code."""
    tolerate_any_terminal()
    # A negative number such as -1 is JSON, not an option; JSON may begin with a space.
    words = [
        f" {word}" if _NEGATIVE.match(word) else word for word in (sys.argv[1:] if arguments is None else arguments)
    ]
    global_options = list(takewhile(lambda word: word.startswith("-"), words))
    command = words[len(global_options) : len(global_options) + 1]
    try:
        return int(app(words, prog_name="fiveways", standalone_mode=False) or ExitCode.OK)
    except typer.TyperException as exc:
        code = report_usage_error(exc, "fiveways")
        # Nagios reads exit code 2 as CRITICAL; a wrong command line is UNKNOWN, which is 3.
        return 3 if command == ["check"] else code
    except OutputClosed:
        # Otherwise Python reports BrokenPipeError when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as exc:  # noqa: BLE001  users see a traceback only with --debug
        # HubCommand chooses the hub before `check` runs, so this error does not pass through `check`.
        if isinstance(exc, UsageError) and command == ["check"]:
            from fiveways.cli.check import report_unknown  # noqa: PLC0415

            return report_unknown(exc)
        return report_error(" ".join(["fiveways", *command]), exc, debug="--debug" in global_options)


def _show_version(*, is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version  # noqa: PLC0415  slow import

        print(f"fiveways {version('fiveways')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def _root(
    *,
    _debug: Annotated[bool, typer.Option("--debug", help="Print a traceback if the command fails.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Define the options before the command; `main` reads --debug itself."""


@app.command(cls=Command)
def serve(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="FIVEWAYS_CONFIG",
            metavar="FILE",
            help="A TOML file of settings; `fiveways config show --docs` prints one with all of them.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The address to listen on; 127.0.0.1 by default.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="The port; 7500 by default, 0 for any free port."),
    ] = None,
    application: Annotated[
        str | None,
        typer.Option("--app", metavar="MODULE:NAME", help="A `fiveways.App` with methods for the hub to register."),
    ] = None,
    journal: Annotated[
        str | None, typer.Option(metavar="DIR", help="Record every frame in a journal in this directory.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as log.level=debug; repeatable."),
    ] = None,
) -> None:
    """Run a hub until Ctrl-C or SIGTERM. SIGHUP reloads the settings.

    Options override environment variables such as FIVEWAYS_SERVER_PORT. Variables
    override the configuration file, and the file overrides the defaults.
    `fiveways config show --docs` describes every setting.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/configuration.md

    [bold]Examples[/bold]

      fiveways serve
      fiveways serve --port 7600 --app fiveways.demo.app:app
      fiveways serve --journal journal
      fiveways serve --config fiveways.toml --set log.level=debug
    """
    from fiveways.cli import serve as implementation  # noqa: PLC0415

    implementation.serve(config, implementation.settings_from_flags(host, port, journal, settings or []), application)


@app.command(cls=HubCommand)
def call(  # noqa: PLR0913  one parameter per option
    url: options.Url,
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="The name of the method, such as math.add.", autocompletion=options.complete_methods
        ),
    ],
    body: options.Body = None,
    *,
    timeout: options.Timeout = 30.0,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each part of a streamed response when it arrives.")
    ] = False,
    attach: options.Attach = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save-attachments", metavar="DIR", help="Save the attachments of the response to this directory."
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print all notes and progress on stderr, debug notes included (nq).")
    ] = False,
    raw: options.Raw = False,
    schema: options.Schema = None,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    r"""Call a method and print its response.

    The body and the response are JSON: coloured on a terminal, else on one line.
    Progress and warnings of the method are printed on stderr (lrpm, nq).

    [bold]Examples[/bold]

      fiveways call lrpm+ws://localhost:7500 hub.echo '"hello"'
      fiveways call umq+ws://localhost:7500 math.add '\[2, 3]'
      echo '{"a": 2, "b": 3}' | fiveways call umq36+ws://hub:7500 math.add -
      fiveways call umq+ws://hub:7500 image.resize @size.json --attach a.png
      fiveways call prod math.add '\[2, 3]'
      fiveways call mqtt-rpc+mqtt://localhost/Greeter SayHello '{"name": "Bob"}' --schema greeter.binpb
    """
    from fiveways.cli import call as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    connection = connection_options(url, token, token_file, identity, secret_file, schema)
    implementation.call(
        connection,
        implementation.CallOptions(
            method,
            body,
            timeout=timeout,
            stream=stream,
            attachments=tuple(attach or ()),
            save_directory=save,
            raw=raw,
            verbose=verbose,
        ),
    )


@app.command(cls=HubCommand)
def publish(  # noqa: PLR0913
    url: options.Url,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The name of the topic, such as sensors.kitchen.temperature.")
    ],
    body: options.Body = None,
    *,
    retain: Annotated[bool, typer.Option("--retain", help="Retain the value for later subscribers.")] = False,
    timeout: options.Timeout = 30.0,
    attach: options.Attach = None,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Publish a value on a topic.

    The command ends when the hub has received the value. It does not wait for
    subscribers.

    [bold]Examples[/bold]

      fiveways publish lrpm+ws://localhost:7500 sensors.kitchen 21.5
      fiveways publish umq+ws://localhost:7500 status '"up"' --retain
    """
    from fiveways.cli import publish as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    connection = connection_options(url, token, token_file, identity, secret_file)
    implementation.publish(connection, implementation.PublishOptions(topic, body, retain, tuple(attach or ()), timeout))


@app.command(cls=HubCommand)
def subscribe(  # noqa: PLR0913
    url: options.Url,
    pattern: Annotated[
        str, typer.Argument(metavar="TOPIC", help="A topic, or a pattern of topics with the wildcard *.")
    ],
    *,
    count: Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="End after this number of events.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="End after this time: with 124 if fewer than --count events arrived, else with 0.",
        ),
    ] = None,
    envelope: Annotated[bool, typer.Option("--envelope", help="Print {topic, data} instead of the data.")] = False,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Print the events of a topic until Ctrl-C.

    The exit code after Ctrl-C is 0. After a lost connection, the command
    reconnects, subscribes again and prints a warning.

    [bold]Examples[/bold]

      fiveways subscribe lrpm+ws://localhost:7500 'sensors.*' --envelope
      fiveways subscribe umq+ws://localhost:7500 status --count 1
    """
    from fiveways.cli import subscribe as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    connection = connection_options(url, token, token_file, identity, secret_file)
    implementation.subscribe(connection, implementation.SubscribeCommandOptions(pattern, count, timeout, envelope, raw))


@app.command(cls=HubCommand)
def discover(
    url: options.Url,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A method, to show its documentation; or a route, with its separator at the end."
        ),
    ] = "",
    *,
    timeout: options.Timeout = 30.0,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """List the registered methods, or show the documentation of one method.

    Names are spelled as in the protocol of the URL.

    [bold]Examples[/bold]

      fiveways discover lrpm+ws://localhost:7500
      fiveways discover lrpm+ws://localhost:7500 math.add --raw
    """
    from fiveways.cli import discover as implementation  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    implementation.discover(
        connection_options(url, token, token_file, identity, secret_file), name, timeout=timeout, raw=raw
    )


for _hub_command in (queue_commands.push, queue_commands.pull, queue_commands.queues, queue_commands.held, clock.clock):
    app.command(cls=HubCommand)(_hub_command)
for _command in (report.report, pipeline_commands.sql, traffic.traffic, demo.demo):
    app.command(cls=Command)(_command)
for _journal_command in (journal_commands.tail, journal_commands.trace, journal_commands.replay):
    app.command(cls=Command)(_journal_command)


@app.command(cls=HubCommand)
def check(  # noqa: PLR0913
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The hub: http://..., the URL of a client, or the name of a saved context. "
            "If omitted: FIVEWAYS_URL, then the default context.",
            autocompletion=options.complete_urls,
        ),
    ] = "http://localhost:7500",
    *,
    warning: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="WARNING if a probe takes longer than this time.")
    ] = None,
    critical: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="CRITICAL if a probe takes longer than this time.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="The timeout of each probe.")] = 10.0,
    ping: Annotated[
        bool, typer.Option("--ping", help="Also call hub.ping, over the protocol of the URL, or over lrpm.")
    ] = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Check the health of a hub, as a Nagios plug-in: one line of output and an exit code.

    Exit codes: 0 OK; 1 WARNING: slow, no connection to the MQTT broker, or lost
    journal records; 2 CRITICAL: not reachable, not ready, or very slow; 3 UNKNOWN.

    [bold]Examples[/bold]

      fiveways check http://localhost:7500 --ping --warning 0.1 --critical 1
      fiveways check prod
    """
    from fiveways.cli import check as implementation  # noqa: PLC0415

    check_options = implementation.CheckOptions(
        url,
        warning=warning,
        critical=critical,
        timeout=timeout,
        ping=ping,
        token=token,
        token_file=token_file,
        identity=identity,
        secret_file=secret_file,
    )
    raise typer.Exit(implementation.check(check_options))


@app.command(cls=Command)
def proto() -> None:
    """Print rpc.proto, the protobuf schema of RPC over MQTT.

    Generate code from it for devices and services behind an MQTT broker.

    [bold]Examples[/bold]

      fiveways proto > rpc.proto
      protoc --python_out=. rpc.proto
    """
    from importlib.resources import files  # noqa: PLC0415  help does without it

    print(files("fiveways.protocols.mqtt_rpc").joinpath("rpc.proto").read_text(encoding="utf-8"), end="")  # noqa: T201


@config_app.command("check", cls=Command)
def config_check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file of settings.")]) -> None:
    """Check a configuration file.

    Environment variables such as FIVEWAYS_SERVER_PORT are included in the check,
    because `fiveways serve` reads them too.

    [bold]Example[/bold]

      fiveways config check fiveways.toml
    """
    from fiveways.cli import config as implementation  # noqa: PLC0415

    implementation.check(file)


@config_app.command("show", cls=Command)
def config_show(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A TOML file of settings.", envvar="FIVEWAYS_CONFIG")
    ] = None,
    *,
    docs: Annotated[bool, typer.Option("--docs", help="Add the description of each setting.")] = False,
) -> None:
    """Show all settings as TOML, with the source of each value that is not the default.

    Secrets are shown as ***.

    [bold]Examples[/bold]

      fiveways config show fiveways.toml
      fiveways config show --docs > fiveways.toml
    """
    from fiveways.cli import config as implementation  # noqa: PLC0415

    implementation.show(file, docs=docs)
