"""Where a run's summary goes: the terminal, files, GitHub."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_jaxcompile.options import Options
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
        if hasattr(config, "workerinput"):
            return
        for path in (options.json, options.html, options.trace):
            if path is not None:
                try:
                    files.check_writable(path)
                except OSError as error:
                    raise pytest.UsageError(
                        f"cannot write {path}: {error.strerror or error}"
                    ) from None
        if options.html and importlib.util.find_spec("jinja2") is None:
            raise pytest.UsageError("--jax-compile-html needs: pip install pytest-jaxcompile[html]")

    # -- the environment ----------------------------------------------------------------

    def environment(self) -> dict[str, Any]:
        """Versions, platform and devices of this process; JAX's only if the run imported it."""
        found: dict[str, Any] = {
            "python": platform.python_version(),
            "pytest": pytest.__version__,
            "platform": platform.platform(),
            "jax": None,
            "jaxlib": None,
            "devices": [],
            "workers": 1,
        }
        if "jax" in sys.modules:
            from pytest_jaxcompile.probe import probe

            found["jax"] = sys.modules["jax"].__version__
            found["jaxlib"] = getattr(sys.modules.get("jaxlib"), "__version__", None)
            found["devices"] = probe().device_names()
        if self._environment:
            found |= {k: v for k, v in self._environment.items() if v}
        return found

    def merge_environment(self, other: dict[str, Any]) -> None:
        """Take over what a worker says; the controller of a parallel run imports no JAX."""
        workers = self._environment.get("workers", 0) + 1
        self._environment |= {k: v for k, v in other.items() if v}
        self._environment["workers"] = workers

    # -- writing -----------------------------------------------------------------------

    def write(self, summary: Summary) -> bool:
        """Write what was asked for; False if anything could not be written."""
        self._to(self._options.json, lambda path: files.save_json(path, summary))
        self._to(self._options.trace, lambda path: files.save(path, _render("trace", summary)))
        self._to(self._options.html, lambda path: files.save(path, _render("html", summary)))
        target = os.environ.get("GITHUB_STEP_SUMMARY")
        if target and self._in_actions:
            from pytest_jaxcompile.report import github

            with open(target, "a", encoding="utf-8") as file:
                file.write(github.step_summary(summary))
        return not self._problems

    def _to(self, path: Path | None, write: Callable[[Path], None]) -> None:
        if path is None:
            return
        try:
            write(path)
        except Exception as error:  # the run's own results must still be shown
            text = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            self._problems.append(f"cannot write {path}: {text}")
        else:
            self._written.append(str(path))

    # -- GitHub Actions -----------------------------------------------------------------

    @property
    def _in_actions(self) -> bool:
        return os.environ.get("GITHUB_ACTIONS") == "true"

    def annotate(self, path: str, line: int, message: str) -> None:
        """A failed expectation at the user's line; nothing outside GitHub Actions."""
        if self._in_actions:
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
        for line in notes:
            reporter.write_line(line)
        for path in self._written:
            reporter.write_line(f"JAX compilations written to {path}")
        for problem in self._problems:
            reporter.write_line(problem, red=True)


def _render(name: str, summary: Summary) -> str:
    module = importlib.import_module(f"pytest_jaxcompile.report.{name}")
    return module.render(summary)  # type: ignore[no-any-return]
