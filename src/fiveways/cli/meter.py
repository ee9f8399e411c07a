"""How far a call is, on a terminal: a line that moves, and is gone when the call is over."""

import asyncio
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from fiveways.cli.endings import printable
from fiveways.cli.notes import line_of, share_of, words_of
from fiveways.client.ongoing import Note

_DELAY: Final = 0.3
"""Seconds before a call that tells nothing is worth a line: most are over by then, and it would only flicker."""
_BAR: Final = 24
_LONGEST_NAME: Final = 30
_STYLES: Final = {"warn": "yellow", "transient": "cyan", "debug": "dim"}


class _Bar(ProgressColumn):
    """A bar, once it is known how much there is to do."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))
        self._bar = BarColumn(_BAR)

    def render(self, task: Task) -> RenderableType:
        """Draw it."""
        return "" if task.total is None else self._bar.render(task)


class _Amount(ProgressColumn):
    """The same in numbers."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, justify="right"))

    def render(self, task: Task) -> RenderableType:
        """Write them."""
        if task.total is None:
            return ""
        share, total = f"{task.percentage:3.0f}%", f"{task.total:.15g}"
        # As wide at first as at last: what stands beside it keeps its place.
        counted = "" if total == "1" else f" {task.completed:.15g}".rjust(len(total) + 1) + f"/{total}"
        return Text(f"{share}{counted}", style="progress.percentage")


class Meter:
    """Shows notes on stderr. Fulfils `notes.Teller`."""

    def __init__(self, method: str, *, verbose: bool) -> None:
        self._verbose = verbose
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[method]}", style="bold", markup=False),
            _Bar(),
            _Amount(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=Console(stderr=True, highlight=False),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            expand=True,
        )
        name = printable(method)
        shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
        self._task = self._progress.add_task("", total=None, method=shown)

    def __enter__(self) -> Self:
        self._begins = asyncio.get_running_loop().call_later(_DELAY, self._progress.start)
        return self

    def __exit__(self, *_: object) -> None:
        self._begins.cancel()
        self._progress.stop()

    def note(self, note: Note) -> None:
        """Move the bar, say beside it what there is to say, or print a line above it."""
        if note.kind != "note":
            if self._verbose or note.kind == "warn":
                text = Text(line_of(note), style=_STYLES.get(note.kind, ""))
                self._progress.console.print(text, soft_wrap=True)
            return
        self._progress.start()
        if (share := share_of(note.value)) is not None:
            self._progress.update(self._task, completed=share.done, total=share.total)
        if words := words_of(note):
            self._progress.update(self._task, description=words)
