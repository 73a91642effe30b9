"""Which module may import which. Arrows point downwards, and few modules know JAX or pytest."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

import pytest_jaxcompile

PACKAGE = Path(pytest_jaxcompile.__file__).parent
NAME = "pytest_jaxcompile"

MAY_IMPORT_PYTEST = {"plugin", "session", "reporting", "options", "marker", "outputs"}
MAY_IMPORT_PYTEST |= {"baseline", "hookspecs"}
MAY_IMPORT_PYTEST |= {"info"}  # tells of the installed pytest, in a process of its own
MAY_REACH_INTO_JAX = {"probe"}
PURE = {"records", "errors", "differ", "explain", "hints", "imports", "strays"}
"""Modules that import neither JAX nor pytest, not even late."""


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


def test_only_the_probe_reaches_into_jax():
    assert users_of("jax._src", sources()) <= MAY_REACH_INTO_JAX
    assert users_of("jaxlib", sources()) <= MAY_REACH_INTO_JAX


def test_only_the_plugin_knows_pytest():
    found = users_of("pytest", sources()) | users_of("_pytest", sources())
    assert found <= MAY_IMPORT_PYTEST


def test_pytest_internals_are_not_touched():
    assert users_of("_pytest", sources()) == set()


def test_what_is_pure_stays_pure():
    modules = sources()
    for package in ("jax", "jaxlib", "numpy", "pytest"):
        assert users_of(package, modules).isdisjoint(PURE)


def test_records_depend_on_nothing_of_ours():
    modules = sources()
    assert own(imports(modules["records"]), modules) == set()
    assert own(imports(modules["errors"]), modules) == set()
    assert own(imports(modules["differ"]), modules) <= {"records"}
    assert own(imports(modules["explain"]), modules) <= {"records", "differ"}


def test_reports_do_not_count():
    """What renders a summary knows neither the recorder nor JAX."""
    modules = sources()
    allowed = {"records", "report", "errors"}
    for name, text in modules.items():
        if name.startswith("report."):
            found = own(imports(text, late=False), modules)
            assert {f for f in found if not f.startswith("report.")} <= allowed, name


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
    assert cycle({**modules, "records": f"from {NAME}.recorder import recorder"}) != []
    assert cycle({"a": f"import {NAME}.b", "b": f"def f():\n    import {NAME}.a"}) == []
