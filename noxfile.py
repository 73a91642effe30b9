"""Sessions: ``nox -l`` lists them, ``nox -s jax`` runs the matrix of JAX releases."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["lint", "tests", "jax", "pytest_versions"]

# One release of every minor version, each with the newest Python it is tested on here.
RELEASES = {
    "0.4.38": "3.11",
    "0.5.3": "3.11",
    "0.6.2": "3.12",
    "0.7.2": "3.12",
    "0.8.3": "3.13",
    "0.9.2": "3.13",
    "0.10.2": "3.11",
    "0.12.0.1": "3.13",
}
# What is counted, and why: the same on every release. The rest of the suite runs on one.
COUNTING = ("tests/recording", "tests/jax_internals", "tests/counting")


def _runs(version: str) -> bool:
    """Whether ``pythonX.Y`` is there and is no shim without a Python behind it."""
    try:
        done = subprocess.run([f"python{version}", "-c", ""], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _find(version: str) -> bool:
    """Whether the machine has this Python; one that pyenv keeps is put on the path."""
    if _runs(version):
        return True
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for folder in sorted(pyenv.glob(f"versions/{version}.*/bin")):
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        return _runs(version)
    return False


HERE = [version for version in ("3.13", "3.12", "3.11") if _find(version)]


def _python(release: str) -> str:
    """The Python for a release: the one it is tested on, or another one that it runs on."""
    wanted = RELEASES[release]
    least = "3.12" if release.startswith("0.12") else "3.11"
    return wanted if wanted in HERE else next((v for v in HERE if v >= least), wanted)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and mypy."""
    session.install("-e", ".[test,lint]", "nox")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The whole suite, with the newest JAX for this Python."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
@nox.parametrize(("python", "release"), [(_python(release), release) for release in RELEASES])
def jax(session: nox.Session, release: str) -> None:
    """What is counted, with one JAX release."""
    if session.python != RELEASES[release]:
        session.warn(f"Python {RELEASES[release]} is missing here")
    session.install("-e", ".", f"jax=={release}", "absl-py", "equinox", "flax", "hypothesis")
    session.install("pytest-xdist")
    session.run("pytest", "-q", "-n", "auto", *COUNTING, *session.posargs)


@nox.session
@nox.parametrize("release", ["8.0.2", "8.4.2"])
def pytest_versions(session: nox.Session, release: str) -> None:
    """The plugin with the oldest pytest that is supported, and one between."""
    session.install("-e", ".", f"pytest=={release}", "absl-py", "pytest-xdist")
    session.run("pytest", "-q", "example_project", "--jax-compile-report")
