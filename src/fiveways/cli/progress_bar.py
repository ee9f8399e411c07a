"""A progress bar for a pending call, on a terminal. It disappears when the call ends."""

import asyncio
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from fiveways.cli.errors import printable
from fiveways.cli.progress_notes import note_line, note_text, parse_fraction
from fiveways.client.pending_call import Note

_START_DELAY: Final = 0.3
"""Seconds before the bar appears without a note: most calls are over by then, and the bar would flicker."""
_BAR_WIDTH: Final = 24
_MAX_NAME: Final = 30
_STYLES: Final = {"warn": "yellow", "transient": "cyan", "debug": "dim"}


class _FractionBar(ProgressColumn):
    """A bar that is visible once the total is known."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True))
        self._bar = BarColumn(_BAR_WIDTH)

    def render(self, task: Task) -> RenderableType:
        """Render the bar."""
        return "" if task.total is None else self._bar.render(task)


class _FractionColumn(ProgressColumn):
    """The percentage and the count, visible once the total is known."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, justify="right"))

    def render(self, task: Task) -> RenderableType:
        """Render the numbers."""
        if task.total is None:
            return ""
        percentage, total = f"{task.percentage:3.0f}%", f"{task.total:.15g}"
        # A constant width keeps the columns beside it in place.
        count = "" if total == "1" else f" {task.completed:.15g}".rjust(len(total) + 1) + f"/{total}"
        return Text(f"{percentage}{count}", style="progress.percentage")


class NoteProgressBar:
    """A progress bar on stderr, with notes beside and above it. Implements `NoteDisplay`."""

    def __init__(self, method: str, *, verbose: bool) -> None:
        self._verbose = verbose
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[method]}", style="bold", markup=False),
            _FractionBar(),
            _FractionColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=Console(stderr=True, highlight=False),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            expand=True,
        )
        name = printable(method)
        label = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}..."
        self._task = self._progress.add_task("", total=None, method=label)

    def __enter__(self) -> Self:
        self._start_timer = asyncio.get_running_loop().call_later(_START_DELAY, self._progress.start)
        return self

    def __exit__(self, *_: object) -> None:
        self._start_timer.cancel()
        self._progress.stop()

    def show_note(self, note: Note) -> None:
        """Update the bar and the text beside it, or print a line above it."""
        if note.kind != "note":
            if self._verbose or note.kind == "warn":
                text = Text(note_line(note), style=_STYLES.get(note.kind, ""))
                self._progress.console.print(text, soft_wrap=True)
            return
        self._progress.start()
        if (fraction := parse_fraction(note.value)) is not None:
            self._progress.update(self._task, completed=fraction.done, total=fraction.total)
        if description := note_text(note):
            self._progress.update(self._task, description=description)
