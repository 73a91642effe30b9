"""The pytest plugin: options, the fixture, and nothing else until a run asks for more.

Importing this module imports neither JAX nor the rest of the package. This room is the only one
that imports pytest; it may import all others but ``command_line``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxcompile.plugin.options import MARKER, MARKER_HELP, Options, add_options, read_options

if TYPE_CHECKING:
    from pytest_jaxcompile.counting.expectations import CompileLog
    from pytest_jaxcompile.plugin.session import Session

_OPTIONS = pytest.StashKey[Options]()
_SESSION = pytest.StashKey["Session"]()
_MALFORMED = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_jaxcompile.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)
    options = config.stash[_OPTIONS] = read_options(config)
    if options.summarises:
        _session(config)


def _session(config: pytest.Config) -> Session:
    """The run's session; the first to ask makes it."""
    session = config.stash.get(_SESSION, None)
    if session is None:
        from pytest_jaxcompile.plugin.session import Session

        session = config.stash[_SESSION] = Session(config, config.stash[_OPTIONS])
        config.pluginmanager.register(session, "jaxcompile-session")
    return session


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    try:
        for item in session.items:
            marked = item.get_closest_marker(MARKER) is not None
            if marked:
                from pytest_jaxcompile.plugin.marker import demands

                demands(item)  # a malformed one is an error now
            if marked or MARKER in getattr(item, "fixturenames", ()):
                _session(session.config).watch(item)
    except pytest.UsageError as error:
        if not hasattr(session.config, "workerinput"):
            raise
        # A worker cannot end the run: it reports no tests, and the controller raises.
        session.config.stash[_MALFORMED] = str(error)
        session.items[:] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    error = session.config.stash.get(_MALFORMED, None)
    if error is not None:
        session.config.workeroutput["jaxcompile_usage"] = error  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_testnodedown(node: Any) -> None:
    error = getattr(node, "workeroutput", {}).get("jaxcompile_usage")
    if error is not None:
        raise pytest.UsageError(error)


@pytest.fixture
def jax_compiles(request: pytest.FixtureRequest) -> CompileLog:
    """What the test makes JAX compile: counts per function, reasons, and expectations.

    The test starts cold: what users' functions had compiled before is forgotten. The
    fixture is a live sequence of the compilations of the test's call phase, with
    ``.count``, ``.traces``, ``.lowerings``, ``.disk_hits``, ``.seconds``, ``.of(f)``,
    ``.ops``, ``.all``, ``.explain()``, and block expectations:

        with jax_compiles.exactly(2, of=f): ...
        with jax_compiles.none(): ...
        assert jax_compiles.per_call(f, [x3, x4, x3]) == [1, 1, 0]
    """
    session = _session(request.config)
    return session.log(request.node)
