"""A future JAX that no longer says what we read is told by name, and never miscounted."""

from __future__ import annotations

import re

import pytest

from pytest_jaxcompile.jax_internals import support_check
from pytest_jaxcompile.jax_internals.probe import probe


def texts() -> tuple[dict[str, str], bool]:
    """The installed JAX, as far as it is read."""
    p = probe()
    found = {}
    for name, path in p.sources.items():
        with open(path, encoding="utf-8") as file:
            found[name] = file.read()
    return found, p.traces_by_log


def renamed(text: str, name: str) -> str:
    return re.sub(rf"\b{re.escape(name)}\b", f"{name}_of_tomorrow", text)


READ = [
    (module, function, variable)
    for module, function, variables in support_check._READ
    for variable in variables.split()
]
FUNCTIONS = [(module, function) for module, function, _ in support_check._READ]
EVENTS = list(support_check._EVENTS)


def test_the_installed_jax_is_as_known():
    sources, by_log = texts()
    assert support_check.compare(sources, by_log) == []
    assert support_check.changes() == []
    support_check.require_supported()


@pytest.mark.parametrize(("module", "variable", "function"), [(m, v, f) for m, f, v in READ])
def test_a_renamed_variable_is_told(module, variable, function):
    sources, by_log = texts()
    found = support_check.compare({**sources, module: renamed(sources[module], variable)}, by_log)
    wanted = f"{function.replace('|', ' or ')} in {module}.py has no"
    # A variable may share its name with a function that is read: then that is told.
    assert any(f.startswith(wanted) and variable in f for f in found) or any(
        f"no function {variable}" in f for f in found
    )


@pytest.mark.parametrize(("module", "function"), FUNCTIONS)
def test_a_renamed_function_is_told(module, function):
    sources, by_log = texts()
    text = sources[module]
    for name in function.split("|"):
        text = renamed(text, name)
    found = support_check.compare({**sources, module: text}, by_log)
    assert f"no function {function.replace('|', ' or ')} in {module}.py" in found


@pytest.mark.parametrize("event", EVENTS)
def test_a_renamed_event_is_told(event):
    sources, by_log = texts()
    changed = {**sources, "dispatch": sources["dispatch"].replace(f'"{event}"', '"/jax/tomorrow"')}
    assert f"no event {event}" in support_check.compare(changed, by_log)


def test_a_lost_trace_log_is_told():
    sources, by_log = texts()
    if not by_log:
        pytest.skip("this JAX tells its traces by events")
    changed = {
        **sources,
        "partial_eval": sources["partial_eval"].replace("TRACING CACHE MISS", "RETRACED"),
        "pjit": sources["pjit"].replace("entry.pjit_params", "entry.params"),
    }
    found = support_check.compare(changed, by_log)
    assert "no log record for each trace" in found
    assert any("tells a finished trace" in f for f in found)


# A JAX whose files say something else: what is read of one of them is renamed.
TOMORROW = """
import pytest_jaxcompile.jax_internals.support_check as support_check
_text = support_check._text
def tomorrow(path):
    text = _text(path)
    return text.replace("def _cached_compilation(", "def _compiled_once(")
support_check._text = tomorrow
"""
TESTS = """
import jax, numpy as np
import pytest

@jax.jit
def f(x): return x * 2

def test_asks(jax_compiles):
    with jax_compiles.exactly(1):
        f(np.ones(3, np.float32))

def test_does_not_ask():
    f(np.ones(4, np.float32))
"""
CHANGED = "no function _cached_compilation in pxla.py"


def test_with_a_check_asked_for_it_is_a_clear_error(project):
    project.makeconftest(TOMORROW)
    project.makepyfile(TESTS)
    result = project.run_tests()
    found = result.parseoutcomes()
    assert (found.pop("passed"), sum(found.values())) == (1, 1)
    assert result.ret == 1
    version = re.escape(probe().jax.__version__)
    result.stdout.re_match_lines([rf".*JAX {version}.*", rf".*{CHANGED}.*"])


def test_with_only_a_report_it_is_told_once(project):
    project.makeconftest(TOMORROW)
    project.makepyfile(TESTS.replace("def test_asks(jax_compiles)", "def helper(jax_compiles)"))
    result = project.run_tests("--jax-compile-report")
    result.assert_outcomes(passed=1)
    assert result.stdout.str().count(CHANGED) == 1
    assert result.ret == 0


def test_without_the_change_both_pass(project):
    """Negative control: the same project and the JAX of today."""
    project.makepyfile(TESTS)
    result = project.run_tests("--jax-compile-report")
    result.assert_outcomes(passed=2)
    assert "no function" not in result.stdout.str()
