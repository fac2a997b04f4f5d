"""How far long work is, for a person at a terminal: rich's bar where it is installed, a plain line elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from . import _terminal

__all__ = ["Progress"]

PATIENCE = 0.7  # seconds before anything is shown
EVERY = 0.1


class Progress:
    """Shown on standard error when that is a terminal and standard output is none; else silent."""

    def __init__(self, wanted: bool = True) -> None:
        self.total = 0  # bytes that will be read, as far as anybody knows
        self.on = wanted and _terminal.is_terminal(sys.stderr) and not _terminal.is_terminal(sys.stdout)
        self._start = self._last = time.monotonic()
        self._rich: Any = None
        self._task: Any = None
        self._shown = False

    def at(self, position: int, bodies: int) -> None:
        """Tells how many bytes were read, and bodies merged."""
        now = time.monotonic()
        if not self.on or now - self._start < PATIENCE or now - self._last < EVERY:
            return
        self._last = now
        if not self._shown:
            self._shown = True
            self._begin()
        if self._rich is not None:
            self._rich.update(self._task, completed=position, bodies=f"{bodies:,}")
            return
        part = f"{min(position / self.total, 1):.0%}, " if self.total else ""
        rate = position / (now - self._start) / 1e6
        print(f"\r\x1b[K{part}{bodies:,} bodies, {rate:.0f} MB/s", end="", file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """A line for standard error, above what is shown."""
        if self._rich is not None:
            self._rich.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            self._clear()
            _terminal.say(line)

    def close(self) -> None:
        """Takes away what is shown."""
        if self._rich is not None:
            self._rich.stop()
            self._rich = None
        else:
            self._clear()
        self.on = False

    def _clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _begin(self) -> None:
        try:
            from rich import progress
            from rich.console import Console
        except ModuleNotFoundError:
            return
        columns = (
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[bodies]} bodies"),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
        self._rich = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._rich.add_task("", total=self.total or None, bodies="0")
        self._rich.start()
