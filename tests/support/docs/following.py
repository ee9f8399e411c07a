"""A page is followed from top to bottom, at one desk, as a reader would."""

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
from tests.support.docs.desk import Desk, Ended, Running, is_hub, until
from tests.support.docs.frames import Wires
from tests.support.docs.markdown import INDENTED, Block, Page
from tests.support.paths import ROOT

Spark: TypeAlias = Callable[[Sequence[str], Path], Ended]
"""Runs `fiveways` with these arguments in this directory, in the Spark that is there."""
_NAMED = re.compile(r"(?:#|//|;) ?([\w./-]+\.\w+)\n")
_GREETED = "Ctrl-C stops it."
_INTERRUPTED = 130


class Step(NamedTuple):
    """A command, and what is shown below it; None if nothing is said about that."""

    command: str
    shown: str | None
    then: str = ""
    """What is shown after Ctrl-C."""
    is_interrupted: bool = False


def kind_of(block: Block) -> str:
    """Return how a block is to be treated."""
    if block.kind != INDENTED:
        return block.kind
    first = block.text.strip().partition("\n")[0]
    return "toml" if first.startswith("[") else "yaml" if first.endswith(":") else "sh"


def _check_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except json.JSONDecodeError as exc:
        raise AssertionError(f"{block.place} is no JSON: {exc}") from exc


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
    """Say whether a page has commands for Spark."""
    return any(registry.SPARK.match(each) and registry.not_run(each) is None for each in commands(page))


def has_own_hub(page: Page) -> bool:
    """Say whether a page starts a hub itself."""
    return any(is_hub(each) for each in commands(page))


def commands(page: Page) -> list[str]:
    """Return all commands that are run here, or would be."""
    blocks = [block for block in page.blocks() if registry.elsewhere(block.page, kind_of(block)) is None]
    return [step.command for block in blocks for step in steps(block)]


class Reader:
    """Follows one page."""

    def __init__(self, page: Page, desk: Desk, spark: Spark | None = None) -> None:
        self._page = page
        self._desk = desk
        self._spark = spark
        self._known: dict[str, str] = {}

    def follow(self) -> None:
        """Do all that the page says."""
        with Wires(f"127.0.0.1:{self._desk.ports.get('7500', '')}", self._known) as wires:
            for block in self._page.blocks():
                self._follow(block, wires)

    def _follow(self, block: Block, wires: Wires) -> None:
        kind = kind_of(block)
        if kind in registry.DRAWINGS or registry.elsewhere(block.page, kind) is not None:
            return
        match kind:
            case "python" | "proto":
                self._code(block, kind)
            case "console" if block.details:
                self._shows_by_now(block)
            case "console" | "sh":
                for step in steps(block):
                    self._step(step, block.place)
            case "toml":
                self._settings(block)
            case "json":
                _check_json(block)
            case "frames":
                wires.play(block)
            case "ini":
                self._unit(block)
            case _:
                raise AssertionError(f"{block.place}: nobody knows what to do with {kind!r}")

    # Code and files.

    def _code(self, block: Block, kind: str) -> None:
        name = _NAMED.match(block.text)
        if name is not None:
            self._desk.save(name[1], block.text)
            return
        assert kind == "python", f"{block.place}: {kind} without a file's name"
        path = self._desk.save(f".shown/{block.line}.py", block.text)
        ended = self._desk.run(f"python {shlex.quote(str(path))}")
        promised = "\n".join(re.findall(r"# prints (.*)", block.text))
        self._judge(ended, promised, f"{block.place}, the program")

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
            done = subprocess.run([program, "verify", str(path)], capture_output=True, text=True, check=False)  # noqa: S603
            ours = [line for line in done.stderr.splitlines() if "fiveways.service" in line]
            assert ours == [], f"{block.place}: {ours}"

    # Commands.

    def _step(self, step: Step, place: str) -> None:
        where = f"{place}, {step.command!r}"
        reason = registry.not_run(step.command)
        if reason is not None:
            return
        number = registry.stands_for(step.command)
        if number is not None:
            self._signal(number, where)
        elif registry.SPARK.match(step.command):
            assert self._spark is not None, f"{where} needs Spark"
            arguments = [*shlex.split(self._desk.here(step.command), comments=True)[1:]]
            # What follows a journal ends here when it has read all that is there.
            arguments += ["--until-end"] if arguments[:2] == ["pipeline", "watch"] else []
            self._judge(self._spark(arguments, self._desk.folder), step.shown, where)
        elif registry.LASTING.search(step.command):
            self._lasting(step, where)
        else:
            self._judge(self._ended(matching.filled(step.command, self._known), step.shown), step.shown, where)

    def _ended(self, command: str, shown: str | None) -> Ended:
        """Run a command, again where it may be too early."""
        ended = self._desk.run(command)

        def is_there() -> Iterator[bool]:
            nonlocal ended
            while not matching.matched(shown or "...", ended.shown, self._known):
                yield False
                ended = self._desk.run(command)
            yield True

        if registry.LATER.match(command):
            until(is_there())
        return ended

    def _lasting(self, step: Step, where: str) -> None:
        running = self._desk.start(step.command.removesuffix("&"))
        shown = step.shown or ""

        def is_there() -> Iterator[bool]:
            while True:
                over = running.is_over
                came = self._desk.there(running.shown)
                if step.shown is None:
                    yield _GREETED in came if is_hub(step.command) else bool(came) and not complains(came)
                else:
                    yield not shown or self._began(shown, came)
                if over:
                    return

        assert until(is_there()), f"{where} should show\n{shown}\nand shows\n{self._desk.there(running.shown)}"
        if step.is_interrupted:
            self._interrupt(running, step, where)

    def _shows_by_now(self, block: Block) -> None:
        """Wait until a command that goes on, and has this in its name, shows what stands here."""
        running = next(each for each in reversed(self._desk.running) if block.details in each.command)

        def is_there() -> Iterator[bool]:
            while True:
                yield matching.matched(block.text, self._desk.there(running.shown), self._known)

        came = f"{block.text}\nand shows\n"
        assert until(is_there()), f"{block.place}, {running.command} should show\n{came}{running.shown}"

    def _began(self, shown: str, came: str) -> bool:
        """Say whether something is there, and begins as is shown."""
        return bool(came) and matching.matched(shown, came, self._known, whole=False)

    def _interrupt(self, running: Running, step: Step, where: str) -> None:
        code = running.end()
        self._desk.running.remove(running)
        came = self._desk.there(running.shown)
        whole = (step.shown or "") + step.then
        assert code in {0, _INTERRUPTED}, f"{where} ends with {code}:\n{came}"
        assert matching.matched(whole, came, self._known), f"{where} should show\n{whole}\nand shows\n{came}"

    def _signal(self, number: signal.Signals, where: str) -> None:
        hub = next((each for each in self._desk.running if is_hub(each.command)), None)
        assert hub is not None, f"{where}: there is no hub"
        if number in {signal.SIGHUP, signal.SIGSTOP, signal.SIGCONT}:
            hub.process.send_signal(number)
            return
        self._desk.running.remove(hub)
        code = hub.end(number)
        assert code == (0 if number is signal.SIGTERM else -number), f"{where}: {code}\n{hub.shown}"

    def _judge(self, ended: Ended, shown: str | None, where: str) -> None:
        """Compare; a command fails exactly if the page shows it complaining."""
        assert (ended.code != 0) == complains(shown or ""), f"{where} ends with {ended.code}:\n{ended.shown}"
        if shown is not None:
            fits = matching.matched(shown, ended.shown, self._known)
            assert fits, f"{where} should show\n{shown}\nand shows\n{ended.shown}"


def complains(shown: str) -> bool:
    """Say whether one of our commands tells what is wrong."""
    return re.search(r"(?m)^fiveways( \w+)+: ", shown) is not None


def require_programs(page: Page) -> None:
    """Skip a page whose programs this machine does not have; fail where CI=true."""
    typed = " ".join(commands(page))
    missing = [each for each in registry.PROGRAMS if re.search(rf"\b{each} ", typed) and shutil.which(each) is None]
    if missing:
        sentence = f"{page.name} is followed with {' and '.join(missing)}, which this machine does not have"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(sentence)


def make_knows(command: str) -> bool:
    """Say whether `make` would know what to do; what follows the target explains it."""
    _, *target = shlex.split(command)[:2]
    done = subprocess.run(["make", "-n", "-C", str(ROOT), *target], capture_output=True, check=False)  # noqa: S603, S607
    return done.returncode == 0
