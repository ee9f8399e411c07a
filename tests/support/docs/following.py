"""Follows a page from top to bottom on one desk, as a reader would."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from fiveways.settings.load import read_settings
from tests.support.compiled_schema import greeter
from tests.support.docs import matching, registry
from tests.support.docs.desk import BackgroundCommand, CommandResult, Desk, is_hub, wait_until
from tests.support.docs.frames import Wires
from tests.support.docs.markdown import INDENTED, Block, Page
from tests.support.paths import ROOT

Spark: TypeAlias = Callable[[Sequence[str], Path], CommandResult]
"""Runs `fiveways` with these arguments in this directory, in the running Spark session."""
_NAMED = re.compile(r"(?:#|//|;) ?([\w./-]+\.\w+)\n")
_GREETED = "Ctrl-C stops it."
_INTERRUPTED = 130


class Step(NamedTuple):
    """A command, and its expected output; None if the page shows no output."""

    command: str
    shown: str | None
    then: str = ""
    """The expected output after Ctrl-C."""
    is_interrupted: bool = False


def kind_of(block: Block) -> str:
    """Return the kind of a block."""
    if block.kind != INDENTED:
        return block.kind
    first = block.text.strip().partition("\n")[0]
    return "toml" if first.startswith("[") else "yaml" if first.endswith(":") else "sh"


def _check_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except json.JSONDecodeError as exc:
        raise AssertionError(f"{block.place} is not JSON: {exc}") from exc


def steps(block: Block) -> Iterator[Step]:
    """Return the commands of a block."""
    match kind_of(block):
        case "console" if not block.details:
            text = re.sub(r"\\\n\s*", "", block.text)
            assert text.startswith("$ "), f"{block.place} does not begin with a command"
            for part in re.split(r"(?m)^\$ ", text)[1:]:
                command, _, shown = part.partition("\n")
                before, stop, after = shown.partition("^C\n")
                yield Step(command.strip(), before, after, bool(stop))
        case "sh":
            for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
                command = re.split(r" {2,}", line.strip())[0]
                if command and not command.startswith("#"):
                    yield Step(command, None)
        case _:
            return


def needs_spark(page: Page) -> bool:
    """Return whether a page has Spark commands."""
    return any(registry.SPARK.match(command) and registry.not_run(command) is None for command in commands(page))


def has_own_hub(page: Page) -> bool:
    """Return whether a page starts a hub."""
    return any(is_hub(command) for command in commands(page))


def commands(page: Page) -> list[str]:
    """Return all commands of the blocks that are followed here."""
    blocks = [block for block in page.blocks() if registry.tested_elsewhere(block.page, kind_of(block)) is None]
    return [step.command for block in blocks for step in steps(block)]


class Reader:
    """Follows one page."""

    def __init__(self, page: Page, desk: Desk, spark: Spark | None = None) -> None:
        self._page = page
        self._desk = desk
        self._spark = spark
        self._known: dict[str, str] = {}

    def follow(self) -> None:
        """Follow all blocks of the page."""
        with Wires(f"127.0.0.1:{self._desk.ports.get('7500', '')}", self._known) as wires:
            for block in self._page.blocks():
                self._follow(block, wires)

    def _follow(self, block: Block, wires: Wires) -> None:
        kind = kind_of(block)
        if kind in registry.DRAWINGS or registry.tested_elsewhere(block.page, kind) is not None:
            return
        match kind:
            case "python" | "proto":
                self._code(block, kind)
            case "console" if block.details:
                self._expect_background_output(block)
            case "console" | "sh":
                for step in steps(block):
                    self._step(step, block.place)
            case "toml":
                self._settings(block)
            case "json":
                _check_json(block)
            case "frames":
                wires.run(block)
            case "ini":
                self._unit(block)
            case _:
                raise AssertionError(f"{block.place}: unknown kind of block {kind!r}")

    # Code and files.

    def _code(self, block: Block, kind: str) -> None:
        name = _NAMED.match(block.text)
        if name is not None:
            self._desk.save(name[1], block.text)
            return
        assert kind == "python", f"{block.place}: {kind} without a file's name"
        path = self._desk.save(f".shown/{block.line}.py", block.text)
        result = self._desk.run(f"python {shlex.quote(str(path))}")
        expected = "\n".join(re.findall(r"# prints (.*)", block.text))
        self._check(result, expected, f"{block.place}, the program")

    def _settings(self, block: Block) -> None:
        name = _NAMED.match(block.text)
        path = self._desk.save(name[1] if name else f".shown/{block.line}.toml", block.text)
        path.chmod(0o600)
        for file in re.findall(r'_file = "([^"/]+)"', block.text):
            if not (path.parent / file).exists():
                (path.parent / file).write_text(f"{file} holds this\n", encoding="utf-8")
                (path.parent / file).chmod(0o600)
        for file in tomllib.loads(block.text).get("mqtt", {}).get("schemas", []):
            if not (path.parent / file).exists():
                shutil.copy(greeter().path, path.parent / file)
        assert not read_settings(path, {}).warnings, block.place

    def _unit(self, block: Block) -> None:
        path = self._desk.save("fiveways.service", block.text)
        text = path.read_text(encoding="utf-8").replace("/opt/fiveways", str(self._desk.folder))
        path.write_text(re.sub(r"(?m)^(User|Group)=.*", r"\1=root", text), encoding="utf-8")
        program = shutil.which("systemd-analyze")
        if program is not None:
            result = subprocess.run([program, "verify", str(path)], capture_output=True, text=True, check=False)  # noqa: S603
            errors = [line for line in result.stderr.splitlines() if "fiveways.service" in line]
            assert errors == [], f"{block.place}: {errors}"

    # Commands.

    def _step(self, step: Step, place: str) -> None:
        where = f"{place}, {step.command!r}"
        reason = registry.not_run(step.command)
        if reason is not None:
            return
        number = registry.signal_of(step.command)
        if number is not None:
            self._signal(number, where)
        elif registry.SPARK.match(step.command):
            assert self._spark is not None, f"{where} needs Spark"
            arguments = [*shlex.split(self._desk.with_own_ports(step.command), comments=True)[1:]]
            # A pipeline that watches a journal must exit here after the last segment.
            arguments += ["--until-end"] if arguments[:2] == ["pipeline", "watch"] else []
            self._check(self._spark(arguments, self._desk.folder), step.shown, where)
        elif registry.BACKGROUND.search(step.command):
            self._run_in_background(step, where)
        else:
            self._check(
                self._run_until_expected(matching.fill(step.command, self._known), step.shown), step.shown, where
            )

    def _run_until_expected(self, command: str, shown: str | None) -> CommandResult:
        """Run a command; repeat it if the hub may not have written the expected records yet."""
        result = self._desk.run(command)

        def attempts() -> Iterator[bool]:
            nonlocal result
            while not matching.matches(shown or "...", result.shown, self._known):
                yield False
                result = self._desk.run(command)
            yield True

        if registry.REPEATED.match(command):
            wait_until(attempts())
        return result

    def _run_in_background(self, step: Step, where: str) -> None:
        running = self._desk.start(step.command.removesuffix("&"))
        shown = step.shown or ""

        def attempts() -> Iterator[bool]:
            while True:
                has_exited = running.has_exited
                output = self._desk.with_docs_ports(running.shown)
                if step.shown is None:
                    yield _GREETED in output if is_hub(step.command) else bool(output) and not shows_error(output)
                else:
                    yield not shown or self._output_begins(shown, output)
                if has_exited:
                    return

        assert wait_until(attempts()), (
            f"{where} should show\n{shown}\nbut shows\n{self._desk.with_docs_ports(running.shown)}"
        )
        if step.is_interrupted:
            self._interrupt(running, step, where)

    def _expect_background_output(self, block: Block) -> None:
        """Wait until the background command of that name shows the text of the block."""
        running = next(background for background in reversed(self._desk.running) if block.details in background.command)

        def attempts() -> Iterator[bool]:
            while True:
                yield matching.matches(block.text, self._desk.with_docs_ports(running.shown), self._known)

        expected = f"{block.text}\nand shows\n"
        assert wait_until(attempts()), f"{block.place}, {running.command} should show\n{expected}{running.shown}"

    def _output_begins(self, shown: str, output: str) -> bool:
        """Return whether there is output that begins as shown."""
        return bool(output) and matching.matches(shown, output, self._known, whole=False)

    def _interrupt(self, running: BackgroundCommand, step: Step, where: str) -> None:
        code = running.end()
        self._desk.running.remove(running)
        output = self._desk.with_docs_ports(running.shown)
        expected = (step.shown or "") + step.then
        assert code in {0, _INTERRUPTED}, f"{where} ends with {code}:\n{output}"
        assert matching.matches(expected, output, self._known), f"{where} should show\n{expected}\nbut shows\n{output}"

    def _signal(self, number: signal.Signals, where: str) -> None:
        hub = next((background for background in self._desk.running if is_hub(background.command)), None)
        assert hub is not None, f"{where}: no hub is running"
        if number in {signal.SIGHUP, signal.SIGSTOP, signal.SIGCONT}:
            hub.process.send_signal(number)
            return
        self._desk.running.remove(hub)
        code = hub.end(number)
        assert code == (0 if number is signal.SIGTERM else -number), f"{where}: {code}\n{hub.shown}"

    def _check(self, result: CommandResult, shown: str | None, where: str) -> None:
        """Compare the output. A command must fail exactly if the page shows an error of it."""
        assert (result.code != 0) == shows_error(shown or ""), f"{where} ends with {result.code}:\n{result.shown}"
        if shown is not None:
            fits = matching.matches(shown, result.shown, self._known)
            assert fits, f"{where} should show\n{shown}\nbut shows\n{result.shown}"


def shows_error(shown: str) -> bool:
    """Return whether a text has an error line of a `fiveways` command."""
    return re.search(r"(?m)^fiveways( \w+)+: ", shown) is not None


def require_programs(page: Page) -> None:
    """Skip a page whose programs are not installed; fail if CI=true."""
    command_text = " ".join(commands(page))
    missing = [
        program
        for program in registry.PROGRAMS
        if re.search(rf"\b{program} ", command_text) and shutil.which(program) is None
    ]
    if missing:
        sentence = f"{page.name} needs {' and '.join(missing)}, which is not installed"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(sentence)


def make_knows(command: str) -> bool:
    """Return whether `make` has the target; words after the target are an explanation."""
    _, *target = shlex.split(command)[:2]
    result = subprocess.run(["make", "-n", "-C", str(ROOT), *target], capture_output=True, check=False)  # noqa: S603, S607
    return result.returncode == 0
