"""What the tests share: fresh processes, and recordings that start cold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def log() -> Iterator[Any]:
    """A recording that starts cold, as the fixture ``jax_compiles`` does, but without pytest."""
    from pytest_jaxcompile import count_compiles

    with count_compiles(cold=True) as recording:
        yield recording


@pytest.fixture
def fresh(tmp_path: Any) -> Callable[..., Any]:
    """Run a program in a fresh process; gives what it passes to ``tell`` (JSON)."""

    def run(source: str, *args: str, env: dict[str, str] | None = None) -> Any:
        answer = tmp_path / "answer.json"
        path = tmp_path / "program.py"
        path.write_text(_TELL.format(answer=str(answer)) + textwrap.dedent(source))
        # Of the surrounding run only what finds packages is kept: a program decides on JAX itself.
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "PYTEST_"))
        }
        done = subprocess.run(
            [sys.executable, str(path), *args],
            env={**kept, "JAX_PLATFORMS": "cpu", **(env or {})},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found = json.loads(answer.read_text())
        answer.unlink()
        return found

    return run


_TELL = """\
def tell(value, _path={answer!r}):
    import json
    with open(_path, "w") as file:
        json.dump(value, file)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty project for pytest runs of its own, which load this plugin and those named.

    ``run_tests`` runs in a subprocess, ``inline_run_tests`` in this process: for runs that end
    before any test, since JAX is loaded here already.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for name in list(os.environ):
        if name.startswith(
            ("PYTEST_XDIST", "JAX_ENABLE", "JAX_LOG", "XLA_", "GITHUB_")
        ) or name in (
            "PYTEST_ADDOPTS",
            "PYTEST_PLUGINS",
        ):
            monkeypatch.delenv(name, raising=False)

    def run(*args: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult:
        loaded = [part for name in plugins for part in ("-p", name)]
        return pytester.runpytest_subprocess("-p", "pytest_jaxcompile.plugin", *loaded, *args)

    def run_here(*args: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("-p", "pytest_jaxcompile.plugin", *args)

    pytester.run_tests = run  # type: ignore[attr-defined]
    pytester.inline_run_tests = run_here  # type: ignore[attr-defined]
    return pytester
