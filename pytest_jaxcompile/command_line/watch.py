"""A program's compilations from its first line to its exit, and the report at the end."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pytest_jaxcompile.counting.views import Recording
from pytest_jaxcompile.errors import CountUnavailableError
from pytest_jaxcompile.jax_internals.environment import environment
from pytest_jaxcompile.jax_internals.import_hook import when_imported
from pytest_jaxcompile.jax_internals.support_check import require_supported
from pytest_jaxcompile.recording.recorder import recorder
from pytest_jaxcompile.report import files, terminal
from pytest_jaxcompile.report.summary import Builder, Summary, pack

PLACE: Final = "script"
"""Where the compilations of a program are, in ``Summary.outside``."""


class Watch:
    """Records from the moment that JAX is imported; reports when the interpreter ends.

    That is after ``atexit`` functions and threads of the program, so that what they compile
    is counted too. A forked child reports nothing.
    """

    def __init__(self, outputs: Mapping[str, Callable[[Summary], None]]) -> None:
        """``outputs`` write the summary, each to the path that is its key."""
        self._outputs = outputs
        self._root = os.getcwd()
        self._process = os.getpid()
        self._started = time.time()
        self._complete = True
        self._environment: dict[str, Any] = {}
        self._recording: Recording | None = None
        self._problem: str | None = None
        atexit.register(self._end)
        self._undo = when_imported("jax", self._jax_loaded)

    def _jax_loaded(self) -> None:
        """A failure of ours must not become one of the program's import."""
        try:
            require_supported()
            recorder.open(traces=False)
            self._recording = Recording(recorder)
        except Exception as error:
            self._problem = str(error)

    def program_ended(self, complete: bool) -> None:
        """The program's main code is done; JAX forgets its devices before we report."""
        self._complete = complete
        self._environment = environment()

    def cancel(self) -> None:
        """There is nothing to report on."""
        self._undo()
        atexit.unregister(self._end)

    def _end(self) -> None:
        if os.getpid() != self._process:
            return
        self._undo()
        summary = self._summary()
        _print(f"\n{' JAX compilations ':=^{_width()}}")
        for line in terminal.lines(summary, _width()):
            _print(line)
        if self._problem is not None:
            _print(f"These numbers may be too low: {self._problem}")
        for path, write in self._outputs.items():
            try:
                write(summary)
            except Exception as error:
                known = isinstance(error, files.ReportError)
                _print(str(error) if known else f"cannot write {path}: {error!r}", sys.__stderr__)
            else:
                _print(f"JAX compilations written to {path}")

    def _summary(self) -> Summary:
        records = []
        if self._recording is not None:
            self._recording.stop()
            self._problem = self._recording.problem()
            stop = self._recording.position
            for entry in self._recording.entries(0, stop):
                try:
                    if entry.draft is not None:
                        records.append(entry.draft.record)
                except CountUnavailableError as error:
                    self._problem = str(error)
            recorder.close(traces=False)
        builder = Builder()
        builder.outside(pack(records, self._root, "main", [PLACE] * len(records)))
        summary = builder.summary
        summary.environment = self._environment or environment()
        summary.started = self._started
        summary.seconds = time.time() - self._started
        summary.complete = self._complete and self._problem is None
        if self._problem is not None:
            summary.notes["problem"] = self._problem
        return summary


def _width() -> int:
    return shutil.get_terminal_size().columns


def _print(line: str, stream: Any = None) -> None:
    """To the first of the process's own streams that takes it: the program may have closed one."""
    targets: tuple[Any, ...] = (stream or sys.__stdout__, sys.__stderr__)
    for target in targets:
        try:
            text = line.encode(target.encoding, "backslashreplace").decode(target.encoding)
            print(text, file=target, flush=True)
        except (AttributeError, OSError, ValueError):
            continue
        return
