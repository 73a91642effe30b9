"""Flags and their ini twins: one table, read once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

GROUP = "jaxcompile"
MARKER = "jax_compiles"
MARKER_HELP = (
    "jax_compiles(*, exactly=N, at_most=N, at_least=N, of=function, fail_fast=False, limit=N): "
    "the test's call phase, started cold, compiles so many functions; of= narrows to a function, "
    "its name or several; limit= replaces --jax-compile-limit for this test."
)
COLD = ("functions", "all", "none")

_PATHS = {
    "json": "write everything recorded as JSON to PATH",
    "html": "write one self-contained page to PATH (needs pytest-jaxcompile[html])",
    "trace": "write Chrome trace events to PATH, for Perfetto",
    "baseline": "compare counts per test and function with the file PATH: more is a failure",
}


def add_options(parser: pytest.Parser) -> None:
    """Every flag defaults to None, so that its ini twin shows through."""
    group = parser.getgroup(GROUP, "JAX compilations")
    group.addoption(
        "--jax-compile-report",
        action="store_true",
        default=None,
        help="report what JAX compiled in this run, why again, and what it cost",
    )
    for name, text in _PATHS.items():
        group.addoption(f"--jax-compile-{name}", metavar="PATH", default=None, help=text)
    group.addoption(
        "--jax-compile-update-baseline",
        action="store_true",
        default=None,
        help="write the counts of this run to the baseline instead of comparing",
    )
    group.addoption(
        "--jax-compile-limit",
        metavar="N",
        default=None,
        help="fail a test in which one function compiles more than N times",
    )
    parser.addini("jax_compile_report", "twin of --jax-compile-report", type="bool", default=False)
    for name in _PATHS:
        parser.addini(f"jax_compile_{name}", f"twin of --jax-compile-{name}", default="")
    parser.addini(
        "jax_compile_update_baseline",
        "twin of --jax-compile-update-baseline",
        type="bool",
        default=False,
    )
    parser.addini("jax_compile_limit", "twin of --jax-compile-limit", default="")
    parser.addini(
        "jax_compile_cold",
        "what a test that counts forgets first: functions (users' functions, eager operations "
        "stay warm), all (jax.clear_caches) or none",
        default="functions",
    )


class Options:
    """What this run is asked for."""

    # No dataclass: making one costs most of a millisecond, at every start of pytest.
    report: bool
    json: Path | None
    html: Path | None
    trace: Path | None
    baseline: Path | None
    update_baseline: bool
    limit: int | None
    cold: str
    in_actions: bool
    """Whether GitHub Actions runs the tests, which shows annotations and a step summary."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    @property
    def summarises(self) -> bool:
        """Whether the whole run is recorded, and not only tests that ask."""
        outputs = (self.json, self.html, self.trace)
        return self.report or any(outputs) or self.checks_all or self.in_actions

    @property
    def checks_all(self) -> bool:
        """Whether every test is checked, so that every test starts cold."""
        return self.baseline is not None or self.limit is not None


def read_options(config: pytest.Config) -> Options:
    """Raises :class:`pytest.UsageError` for a value that makes no sense."""

    def value(name: str) -> Any:
        given = config.getoption(f"jax_compile_{name}")
        return config.getini(f"jax_compile_{name}") if given is None else given

    def path(name: str) -> Path | None:
        given = config.getoption(f"jax_compile_{name}")
        if given is not None:
            return Path(config.invocation_params.dir, given)
        text = config.getini(f"jax_compile_{name}")
        return (
            Path(config.inipath.parent if config.inipath else config.rootpath, text)
            if text
            else None
        )

    cold = config.getini("jax_compile_cold")
    if cold not in COLD:
        raise pytest.UsageError(f"jax_compile_cold = {cold!r}: must be one of {', '.join(COLD)}")
    limit = value("limit")
    if limit not in (None, ""):
        if not str(limit).isdecimal():
            raise pytest.UsageError(
                f"--jax-compile-limit must be a number of compilations, 0 or more, not {limit!r}"
            )
        limit = int(limit)
    options = Options(
        report=bool(value("report")),
        json=path("json"),
        html=path("html"),
        trace=path("trace"),
        baseline=path("baseline"),
        update_baseline=bool(value("update_baseline")),
        limit=None if limit == "" else limit,
        cold=cold,
        in_actions=os.environ.get("GITHUB_ACTIONS") == "true",
    )
    if options.update_baseline and options.baseline is None:
        raise pytest.UsageError("--jax-compile-update-baseline needs --jax-compile-baseline=PATH")
    return options
