"""Sessions: ``nox -l`` lists them, ``nox -s jax`` runs the matrix of JAX releases."""

from __future__ import annotations

import shutil

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
COUNTING = (
    "tests/test_cases.py",
    "tests/test_cold.py",
    "tests/test_counting.py",
    "tests/test_expectations.py",
    "tests/test_model.py",
    "tests/test_selfcheck.py",
)


def _interpreter(wanted: str) -> str | None:
    """The wanted Python, or an older one that the package supports, if the machine has it."""
    versions = ["3.13", "3.12", "3.11"]
    for version in versions[versions.index(wanted) :]:
        if shutil.which(f"python{version}"):
            return version
    return None


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


@nox.session(python=sorted(set(RELEASES.values())))
@nox.parametrize("release", list(RELEASES))
def jax(session: nox.Session, release: str) -> None:
    """What is counted, with one JAX release."""
    if session.python != (_interpreter(RELEASES[release]) or RELEASES[release]):
        session.skip(f"JAX {release} runs on Python {RELEASES[release]} here")
    session.install("-e", ".", f"jax=={release}", "absl-py", "equinox", "flax", "hypothesis")
    session.install("pytest-xdist")
    session.run("pytest", "-q", "-n", "auto", *COUNTING, *session.posargs)


@nox.session
@nox.parametrize("release", ["8.0.2", "8.4.2"])
def pytest_versions(session: nox.Session, release: str) -> None:
    """The plugin with the oldest pytest that is supported, and one between."""
    session.install("-e", ".", f"pytest=={release}", "absl-py", "pytest-xdist")
    session.run("pytest", "-q", "example_project", "--jax-compile-report")
