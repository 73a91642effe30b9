"""Waiting for a module without importing it."""

from __future__ import annotations

import importlib
import sys

import pytest

from pytest_jaxcompile.jax_internals.import_hook import when_imported


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module; gives its name. Whatever a test does, it is forgotten again."""
    made = []

    def write(source="value = 1\n", name="waited_for"):
        if "." in name:
            (tmp_path / name.partition(".")[0]).mkdir(exist_ok=True)
        path = tmp_path.joinpath(*name.split("."))
        path.with_suffix(".py").write_text(source)
        made.append(name)
        importlib.invalidate_caches()
        return name

    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield write
    for name in made:
        sys.modules.pop(name, None)
    assert sys.meta_path == finders, "a finder was left behind"


def test_called_once_right_after_the_import(module):
    name = module()
    seen = []
    stop = when_imported(name, lambda: seen.append(sys.modules[name].value))
    assert seen == []
    assert name not in sys.modules
    importlib.import_module(name)
    assert seen == [1]
    importlib.reload(sys.modules[name])
    assert seen == [1]
    stop()  # too late, and harmless


def test_called_at_once_if_it_is_there(module):
    name = module()
    importlib.import_module(name)
    seen = []
    when_imported(name, lambda: seen.append(1))()
    assert seen == [1]


def test_never_called_after_stop(module):
    name = module()
    seen = []
    when_imported(name, lambda: seen.append(1))()
    importlib.import_module(name)
    assert seen == []


def test_other_modules_do_not_call(module):
    name, other = module(), module(name="another_one")
    seen = []
    stop = when_imported(name, lambda: seen.append(1))
    importlib.import_module(other)
    assert seen == []
    stop()


def test_the_module_looks_as_without_us(module):
    name = module()
    plain = importlib.import_module(name)
    expected = type(plain.__loader__), type(plain.__spec__.loader), plain.__spec__.origin
    del sys.modules[name]
    when_imported(name, lambda: None)
    waited = importlib.import_module(name)
    assert (
        type(waited.__loader__),
        type(waited.__spec__.loader),
        waited.__spec__.origin,
    ) == expected
    assert importlib.util.find_spec(name) is waited.__spec__


def test_an_import_that_fails_raises_as_without_us_and_is_waited_for(module):
    name = module("raise ValueError('theirs')\n")
    seen = []
    stop = when_imported(name, lambda: seen.append(1))
    with pytest.raises(ValueError, match="theirs"):
        importlib.import_module(name)
    assert seen == []
    assert name not in sys.modules
    stop()


def test_a_module_that_is_not_there(module):
    stop = when_imported("nowhere_to_be_found", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        importlib.import_module("nowhere_to_be_found")
    stop()


def test_two_that_wait_are_both_called(module):
    """As when a run inside a run waits for JAX too."""
    name = module()
    seen = []
    stops = [when_imported(name, lambda n=n: seen.append(n)) for n in (1, 2)]
    try:
        importlib.import_module(name)
    finally:
        for stop in stops:
            stop()
    assert sorted(seen) == [1, 2]


def test_a_module_that_asks_for_its_source(module):
    """The loader is only taken over for the import: ``inspect`` and tracebacks find the source."""
    import inspect

    name = module("def f():\n    return 1\n")
    when_imported(name, lambda: None)
    found = importlib.import_module(name)
    assert inspect.getsource(found.f) == "def f():\n    return 1\n"
