"""The program `fiveways`: its commands, their options and help. What they do stands in modules of their names."""

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
    help="""One messaging hub for UMQ, UMQ36, LRPM, RPC over MQTT and NQ.

[bold]A first try[/bold]

All of it in a minute:

  fiveways demo

Or in two terminals:

  fiveways serve
  fiveways call lrpm+ws://localhost:7500 hub.echo '"hello"'
""",
    epilog="Exit codes: 0 done, 1 failed, 2 the command line is wrong, 124 out of time; check has its own.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(
    cls=CommandGroup,
    help="""Check a configuration file, or show what is set.

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
    """Run a command and return its exit code. Whatever happens is told in one sentence."""
    tolerate_any_terminal()
    # -1 is a number and no option; blanks around JSON do not count.
    given = [
        f" {each}" if _NEGATIVE.match(each) else each for each in (sys.argv[1:] if arguments is None else arguments)
    ]
    own = list(takewhile(lambda each: each.startswith("-"), given))
    command = given[len(own) : len(own) + 1]
    try:
        return int(app(given, prog_name="fiveways", standalone_mode=False) or ExitCode.OK)
    except typer.TyperException as exc:
        code = report_usage_error(exc, "fiveways")
        # Nagios reads 2 as an alarm, and a command line that is wrong says nothing about the hub.
        return 3 if command == ["check"] else code
    except OutputClosed:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as exc:  # noqa: BLE001  a user is never shown a traceback that they did not ask for
        # The choice of the hub fails before the command runs.
        if isinstance(exc, UsageError) and command == ["check"]:
            from fiveways.cli.check import report_unknown  # noqa: PLC0415

            return report_unknown(exc)
        return report_error(" ".join(["fiveways", *command]), exc, debug="--debug" in own)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415  takes as long as all the rest

        print(f"fiveways {version('fiveways')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def _root(
    *,
    _debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error happened.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take what stands before the command; `main` looks for --debug itself."""


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
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen, 127.0.0.1 unless it is set.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="The port, 7500 unless it is set; 0 takes a free one."),
    ] = None,
    application: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:NAME", help="Methods in Python to offer, a `fiveways.App`.")
    ] = None,
    journal: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where to write a record of every frame, the journal.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, such as log.level=debug; repeatable."),
    ] = None,
) -> None:
    """Run a hub until it is told to stop (Ctrl-C, TERM); HUP reads the settings again.

    Flags win over variables such as FIVEWAYS_SERVER_PORT, these over the file, the file over defaults.
    `fiveways config show --docs` describes every setting.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/configuration.md

    [bold]Examples[/bold]

      fiveways serve
      fiveways serve --port 7600 --app fiveways.demo.app:app
      fiveways serve --journal journal
      fiveways serve --config fiveways.toml --set log.level=debug
    """
    from fiveways.cli import serve as verb  # noqa: PLC0415

    verb.serve(config, verb.settings_from_flags(host, port, journal, settings or []), application)


@app.command(cls=HubCommand)
def call(  # noqa: PLR0913  as many as the user has
    url: options.Url,
    method: Annotated[
        str,
        typer.Argument(metavar="METHOD", help="Its name, such as math.add.", autocompletion=options.complete_methods),
    ],
    body: options.Body = None,
    *,
    timeout: options.Timeout = 30.0,
    stream: Annotated[bool, typer.Option("--stream", help="Print the parts of the answer as they come.")] = False,
    attach: options.Attach = None,
    save: Annotated[
        Path | None,
        typer.Option("--save-attachments", metavar="DIR", help="Keep the attachments of the answer there."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say on stderr whatever is told on the way, for debugging as well (nq).")
    ] = False,
    raw: options.Raw = False,
    schema: options.Schema = None,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    r"""Call a method and print its answer.

    JSON goes in and comes out: on one line for programs, coloured on a terminal.
    How far it is, and warnings, are told on stderr (lrpm, nq).

    [bold]Examples[/bold]

      fiveways call lrpm+ws://localhost:7500 hub.echo '"hello"'
      fiveways call umq+ws://localhost:7500 math.add '\[2, 3]'
      echo '{"a": 2, "b": 3}' | fiveways call umq36+ws://hub:7500 math.add -
      fiveways call umq+ws://hub:7500 image.resize @size.json --attach a.png
      fiveways call prod math.add '\[2, 3]'
      fiveways call mqtt-rpc+mqtt://localhost/Greeter SayHello '{"name": "Bob"}' --schema greeter.binpb
    """
    from fiveways.cli import call as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    gate = connection_options(url, token, token_file, identity, secret_file, schema)
    verb.call(gate, verb.CallOptions(method, body, timeout, stream, tuple(attach or ()), save, raw, verbose))


@app.command(cls=HubCommand)
def publish(  # noqa: PLR0913
    url: options.Url,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name, such as sensors.kitchen.temperature.")],
    body: options.Body = None,
    *,
    retain: Annotated[bool, typer.Option("--retain", help="Keep it for those who subscribe later.")] = False,
    timeout: options.Timeout = 30.0,
    attach: options.Attach = None,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Publish a value on a topic.

    It ends when the hub has the value, not when all have read it.

    [bold]Examples[/bold]

      fiveways publish lrpm+ws://localhost:7500 sensors.kitchen 21.5
      fiveways publish umq+ws://localhost:7500 status '"up"' --retain
    """
    from fiveways.cli import publish as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    gate = connection_options(url, token, token_file, identity, secret_file)
    verb.publish(gate, verb.PublishOptions(topic, body, retain, tuple(attach or ()), timeout))


@app.command(cls=HubCommand)
def subscribe(  # noqa: PLR0913
    url: options.Url,
    pattern: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, or with * a pattern of topics.")],
    *,
    count: Annotated[int | None, typer.Option(min=1, metavar="NUMBER", help="End after so many.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="End after so long: with 124 if fewer than --count came, else with 0.",
        ),
    ] = None,
    envelope: Annotated[bool, typer.Option("--envelope", help="Print {topic, data} instead of the data.")] = False,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Print what is published on a topic, until Ctrl-C.

    Ctrl-C ends it with 0. After a lost connection it subscribes again, and says so.

    [bold]Examples[/bold]

      fiveways subscribe lrpm+ws://localhost:7500 'sensors.*' --envelope
      fiveways subscribe umq+ws://localhost:7500 status --count 1
    """
    from fiveways.cli import subscribe as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    gate = connection_options(url, token, token_file, identity, secret_file)
    verb.subscribe(gate, verb.SubscribeCommandOptions(pattern, count, timeout, envelope, raw))


@app.command(cls=HubCommand)
def discover(
    url: options.Url,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A method, to read about it, or a route that ends in its separator.")
    ] = "",
    *,
    timeout: options.Timeout = 30.0,
    raw: options.Raw = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """List the methods on offer, or show the documentation of one.

    Names are in the spelling of the URL's protocol.

    [bold]Examples[/bold]

      fiveways discover lrpm+ws://localhost:7500
      fiveways discover lrpm+ws://localhost:7500 math.add --raw
    """
    from fiveways.cli import discover as verb  # noqa: PLC0415
    from fiveways.cli.connection_options import connection_options  # noqa: PLC0415

    verb.discover(connection_options(url, token, token_file, identity, secret_file), name, timeout=timeout, raw=raw)


for _queue_verb in (queue_commands.push, queue_commands.pull, queue_commands.queues, queue_commands.held, clock.clock):
    app.command(cls=HubCommand)(_queue_verb)
for _verb in (report.report, pipeline_commands.sql, traffic.traffic, demo.demo):
    app.command(cls=Command)(_verb)
for _reader in (journal_commands.tail, journal_commands.trace, journal_commands.replay):
    app.command(cls=Command)(_reader)


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
        float | None, typer.Option(min=0, metavar="SECONDS", help="Warn if it takes longer than that.")
    ] = None,
    critical: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Raise the alarm if it takes longer than that.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Give up after so long.")] = 10.0,
    ping: Annotated[
        bool, typer.Option("--ping", help="Call hub.ping as well, over lrpm or the URL's protocol.")
    ] = False,
    token: options.Token = "",
    token_file: options.TokenFile = None,
    identity: options.Identity = "",
    secret_file: options.SecretFile = None,
) -> None:
    """Ask a hub how it is, for Nagios and its like: one line, and exit code 0, 1, 2 or 3.

    0 is OK, 1 is WARNING (slow, or it has lost its broker or parts of its journal), 2 is CRITICAL (away, not
    ready, or very slow), 3 is UNKNOWN.

    [bold]Examples[/bold]

      fiveways check http://localhost:7500 --ping --warning 0.1 --critical 1
      fiveways check prod
    """
    from fiveways.cli import check as verb  # noqa: PLC0415

    wish = verb.CheckOptions(url, warning, critical, timeout, ping, token, token_file, identity, secret_file)
    raise typer.Exit(verb.check(wish))


@app.command(cls=Command)
def proto() -> None:
    """Print rpc.proto, the protobuf schema of RPC over MQTT.

    Generate code from it for devices and services that speak to a broker.

    [bold]Examples[/bold]

      fiveways proto > rpc.proto
      protoc --python_out=. rpc.proto
    """
    from importlib.resources import files  # noqa: PLC0415  help does without it

    print(files("fiveways.protocols.mqtt_rpc").joinpath("rpc.proto").read_text(encoding="utf-8"), end="")  # noqa: T201


@config_app.command("check", cls=Command)
def config_check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file of settings.")]) -> None:
    """Say whether a file is a good configuration.

    Variables of the environment count as well, as they do for `fiveways serve`.

    [bold]Example[/bold]

      fiveways config check fiveways.toml
    """
    from fiveways.cli import config as verb  # noqa: PLC0415

    verb.check(file)


@config_app.command("show", cls=Command)
def config_show(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A TOML file of settings.", envvar="FIVEWAYS_CONFIG")
    ] = None,
    *,
    docs: Annotated[bool, typer.Option("--docs", help="Say what each setting means.")] = False,
) -> None:
    """Show all settings as TOML, and where each comes from that is not the default.

    Secrets are shown as ***.

    [bold]Examples[/bold]

      fiveways config show fiveways.toml
      fiveways config show --docs > fiveways.toml
    """
    from fiveways.cli import config as verb  # noqa: PLC0415

    verb.show(file, docs=docs)
