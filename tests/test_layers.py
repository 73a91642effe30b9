"""Which module may import which. Arrows point downwards, and few modules know JAX or pytest."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

import pytest_jaxcompile

PACKAGE = Path(pytest_jaxcompile.__file__).parent
NAME = "pytest_jaxcompile"

ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "records": set(),
    "reasons": {"records"},
    "jax_internals": {"errors"},
    "recording": {"jax_internals", "reasons", "records", "errors"},
    "counting": {"recording", "jax_internals", "records", "errors"},
    "report": {"records"},
    "plugin": {
        "counting",
        "recording",
        "report",
        "reasons",
        "jax_internals",
        "records",
        "errors",
    },
    "command_line": {
        "plugin",
        "counting",
        "recording",
        "report",
        "reasons",
        "jax_internals",
        "records",
        "errors",
    },
}
"""Which room may import which. A room is a package, or a module at the top."""

TOP = {"__init__", "__main__", "records", "errors"}
"""What stands at the top beside the rooms. ``__init__`` and ``__main__`` open the doors to all."""

MAY_IMPORT_PYTEST = {"plugin"}
MAY_IMPORT_PYTEST_ALSO = {"command_line.info"}  # tells which pytest is installed
MAY_REACH_INTO_JAX = {"jax_internals.probe"}
PURE = {"records", "errors", "reasons", "report", "recording.leftover_threads"}
"""Rooms and modules that import neither JAX nor pytest, not even late."""


def sources() -> dict[str, str]:
    """The text of every module, by its name below the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        found[".".join(parts)] = path.read_text(encoding="utf-8")
    return found


def imports(source: str, late: bool = True) -> set[str]:
    """Full names that a module imports; without those for type checkers, nor late ones if asked."""
    tree = ast.parse(source)
    found: set[str] = set()

    def walk(nodes: list[ast.stmt], top: bool) -> None:
        for node in nodes:
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                walk(node.orelse, top)
                continue
            if isinstance(node, ast.Import) and (top or late):
                found.update(alias.name for alias in node.names)
            if isinstance(node, ast.ImportFrom) and (top or late):
                base = node.module or ""
                assert node.level == 0, "imports name the whole package"
                found.add(base)
                found.update(f"{base}.{alias.name}" for alias in node.names)
            inside = top and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for name in ("body", "orelse", "finalbody"):
                walk([n for n in getattr(node, name, []) if isinstance(n, ast.stmt)], inside)
            for handler in getattr(node, "handlers", []) + getattr(node, "cases", []):
                walk(handler.body, inside)

    walk(tree.body, True)
    return found


def own(found: set[str], modules: dict[str, str]) -> set[str]:
    """Those of our own modules."""
    names = {name.removeprefix(f"{NAME}.") for name in found if name.startswith(f"{NAME}.")}
    return {name for name in names if name in modules}


def cycle(modules: dict[str, str]) -> list[str]:
    """Modules that import each other in a circle; empty if all arrows can point downwards."""
    graph = {
        name: own(imports(text, late=False), modules) - {name} for name, text in modules.items()
    }
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def users_of(package: str, modules: dict[str, str]) -> set[str]:
    """Modules that import ``package`` or something in it."""
    return {
        name
        for name, text in modules.items()
        if any(f"{found}.".startswith(f"{package}.") for found in imports(text))
    }


def test_arrows_point_downwards():
    assert cycle(sources()) == []


def room(module: str) -> str:
    """The room in which a module stands."""
    return module.partition(".")[0]


def trespasses(modules: dict[str, str]) -> list[str]:
    """Imports that the table does not allow, function-level ones included."""
    return sorted(
        f"{name} imports {found}"
        for name, text in modules.items()
        if room(name) in ROOMS
        for found in own(imports(text), modules)
        if room(found) in ROOMS and room(found) not in ROOMS[room(name)] | {room(name)}
    )


def test_rooms_import_what_the_table_allows():
    modules = sources()
    assert {room(name) for name in modules if name and room(name) != "__main__"} == set(ROOMS)
    assert trespasses(modules) == []


def test_few_modules_stand_at_the_top():
    assert {path.stem for path in PACKAGE.glob("*.py")} == TOP


def test_every_room_says_what_it_holds():
    for name in set(ROOMS) - TOP:
        text = (PACKAGE / name / "__init__.py").read_text(encoding="utf-8")
        assert "import" in (ast.get_docstring(ast.parse(text)) or ""), name


def test_only_the_probe_reaches_into_jax():
    assert users_of("jax._src", sources()) <= MAY_REACH_INTO_JAX
    assert users_of("jaxlib", sources()) <= MAY_REACH_INTO_JAX


def test_only_the_plugin_knows_pytest():
    found = users_of("pytest", sources()) - MAY_IMPORT_PYTEST_ALSO
    assert {room(name) for name in found} <= MAY_IMPORT_PYTEST


def test_pytest_internals_are_not_touched():
    assert users_of("_pytest", sources()) == set()


def test_what_is_pure_stays_pure():
    modules = sources()
    for package in ("jax", "jaxlib", "numpy", "pytest"):
        found = users_of(package, modules)
        assert not {name for name in found if name in PURE or room(name) in PURE}


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import jax._src.core", True),
        ("from jax._src import core", True),
        ("def f():\n    from jax._src.core import x", True),
        ("try:\n    pass\nexcept E:\n    import jax._src", True),
        ("import jax", False),
        ("if TYPE_CHECKING:\n    import jax._src", False),
        ("import jax_src", False),
    ],
)
def test_a_forbidden_import_would_be_seen(source, seen):
    assert (users_of("jax._src", {"new": source}) == {"new"}) is seen


def test_an_arrow_upwards_would_be_seen():
    modules = sources()
    upwards = {**modules, "records": f"from {NAME}.recording.recorder import recorder"}
    assert cycle(upwards) != []
    assert cycle({"a": f"import {NAME}.b", "b": f"def f():\n    import {NAME}.a"}) == []


@pytest.mark.parametrize(
    ("module", "source", "told"),
    [
        ("reasons.new", f"from {NAME}.jax_internals import probe", "jax_internals.probe"),
        ("report.new", f"def f():\n    from {NAME}.recording.recorder import x", "recording"),
        ("records", f"import {NAME}.errors", "errors"),
        ("counting.new", f"from {NAME}.plugin.options import Options", "plugin.options"),
        ("counting.new", f"from {NAME}.recording import recorder", None),
        ("plugin.new", f"from {NAME}.command_line import commands", "command_line"),
    ],
)
def test_an_import_past_the_table_would_be_seen(module, source, told):
    found = trespasses({**sources(), module: source})
    assert bool(found) is (told is not None)
    assert all(line.startswith(module) for line in found)
    assert told is None or any(told in line for line in found)
