"""Where a run's summary goes: the terminal, files, GitHub."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_jaxcompile.counting.messages import shown_path
from pytest_jaxcompile.jax_internals.environment import environment
from pytest_jaxcompile.plugin.options import Options
from pytest_jaxcompile.report import files, terminal
from pytest_jaxcompile.report.summary import Summary


class Outputs:
    """Raises :class:`pytest.UsageError` at once for an output that could not be made at the end."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self._config = config
        self._options = options
        self._written: list[str] = []
        self._problems: list[str] = []
        self._environment: dict[str, Any] = {}
        self._annotations: list[str] = []
        self.warning: str | None = None
        if hasattr(config, "workerinput"):
            return
        written = [options.json, options.html, options.trace]
        if options.update_baseline:
            written.append(options.baseline)
        for path in written:
            if path is not None:
                try:
                    files.check_writable(path)
                except files.ReportError as error:
                    raise pytest.UsageError(str(error)) from None
        if options.html and importlib.util.find_spec("jinja2") is None:
            raise pytest.UsageError(
                "--jax-compile-html needs: pip install 'pytest-jaxcompile[html]'"
            )

    # -- the environment ----------------------------------------------------------------

    def environment(self) -> dict[str, Any]:
        """What this process ran on, and what its workers said of theirs."""
        return environment() | {k: v for k, v in self._environment.items() if v}

    def merge_environment(self, other: dict[str, Any]) -> None:
        """Take over what a worker says; the controller of a parallel run imports no JAX."""
        workers = self._environment.get("workers", 0) + 1
        self._environment |= {k: v for k, v in other.items() if v}
        self._environment["workers"] = workers

    # -- writing -----------------------------------------------------------------------

    def write(self, summary: Summary) -> bool:
        """Write what was asked for; False if anything could not be written."""
        self._to(self._options.json, lambda path: files.save_json(path, summary))
        self._to(
            self._options.trace, lambda path: files.save(path, _render("chrome_trace", summary))
        )
        self._to(self._options.html, lambda path: files.save(path, _render("html", summary)))
        target = os.environ.get("GITHUB_STEP_SUMMARY")
        if target and self._options.in_actions:
            text = _render("github", summary, "step_summary")
            try:
                with open(target, "a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                self.problem(f"cannot write the step summary {target}: {error.strerror}")
        return not self._problems

    def problem(self, text: str) -> None:
        """Something that was asked for and could not be done; told at the end."""
        self._problems.append(text)

    def _to(self, path: Path | None, write: Callable[[Path], None]) -> None:
        if path is None:
            return
        try:
            write(path)
        except files.ReportError as error:
            self._problems.append(str(error))
        except Exception as error:  # the run's own results must still be shown
            self._problems.append(f"cannot write {path}: {type(error).__name__}: {error}")
        else:
            self._written.append(shown_path(str(path)))

    # -- GitHub Actions -----------------------------------------------------------------

    def annotate(self, path: str, line: int, message: str) -> None:
        """A failed expectation at the user's line; nothing outside GitHub Actions."""
        if self._options.in_actions:
            from pytest_jaxcompile.report import github

            self._annotations.append(github.annotation(path, line, "JAX compilations", message))

    # -- the terminal -------------------------------------------------------------------

    def show(self, reporter: pytest.TerminalReporter, summary: Summary, notes: list[str]) -> None:
        for annotation in self._annotations:
            reporter.write_line(annotation)
        if self._options.report:
            reporter.section("JAX compilations")
            width = reporter._tw.fullwidth
            for line in terminal.lines(summary, width):
                reporter.write_line(line)
        if self.warning is not None:
            reporter.write_line(self.warning, yellow=True)
        for line in notes:
            reporter.write_line(line)
        for path in self._written:
            reporter.write_line(f"JAX compilations written to {path}")
        for problem in self._problems:
            reporter.write_line(problem, red=True)


def _render(name: str, summary: Summary, function: str = "render") -> str:
    module = importlib.import_module(f"pytest_jaxcompile.report.{name}")
    return getattr(module, function)(summary)  # type: ignore[no-any-return]
