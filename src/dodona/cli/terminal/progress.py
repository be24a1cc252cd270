"""Progress of a long command: a bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dodona.cli.terminal.output import print_note

LINE_INTERVAL: Final = 2.0  # seconds between two lines


class ProgressBar:
    """Shows the progress of one task on standard error. `update` is thread-safe."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._started = monotonic()
        self._last_line_at = self._started
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(label, total=None, speed="")

    def update(self, done: int, total: int, size: int = 0) -> None:
        speed = _format_speed(size, monotonic() - self._started)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, speed=speed)
        elif monotonic() - self._last_line_at >= LINE_INTERVAL:
            self._last_line_at = monotonic()
            print_note(f"{self._label}: {done:,} of {total:,}{f', {speed}' if speed else ''}")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _format_speed(size: int, seconds: float) -> str:
    return f"{size / 1e6 / seconds:.1f} MB/s" if size and seconds > 0 else ""
