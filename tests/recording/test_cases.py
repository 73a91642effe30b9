"""Every program in ``cases`` gives the numbers that are known of it, in a fresh process."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

FILES = sorted((Path(__file__).parents[1] / "cases").glob("[0-9]*.py"))
JAX = tuple(int(part) for part in importlib.metadata.version("jax").split(".")[:3])

# Runs one case and tells what was counted around it. Nothing of this file is imported there.
RUN = """
import runpy, sys
module = runpy.run_path(sys.argv[1])
from pytest_jaxcompile import CountUnavailableError, count_compiles

def numbers(view):
    return {"traces": view.traces, "lowerings": view.lowerings,
            "compilations": view.count, "disk_hits": view.disk_hits,
            "reasons": [[reason.kind for reason in record.reasons] for record in view]}

with count_compiles() as log:
    module["run"]()
found = {"all": log.all.count, "ops": log.ops.count, "of": {}, "bodies": dict(module["TRACES"])}
for name, expected in module["CASE"]["expect"].items():
    of = expected["of"]
    if of.startswith("<object> "):
        of = eval(of.removeprefix("<object> "), module)
    found["of"][name] = numbers(log.of(of))
tell(found)
"""


def mismatches(case: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Where the numbers of a run are not those of the case, in words."""
    wrong = []
    for name, expected in case["expect"].items():
        for number in ("traces", "lowerings", "compilations", "disk_hits"):
            if expected[number] is not None and found["of"][name][number] != expected[number]:
                got = found["of"][name][number]
                wrong.append(f"{name}: {number} {got}, not {expected[number]}")
    for number in ("all", "ops"):
        if number in case and found[number] != case[number]:
            wrong.append(f"{number} {found[number]}, not {case[number]}")
    for name, kinds in case.get("reasons_after_the_first", {}).items():
        first, *rest = found["of"][name]["reasons"]
        if first:
            wrong.append(f"{name}: the first compilation has reasons {first}")
        ranked = [reasons[0] if reasons else None for reasons in rest]
        if len(ranked) != len(kinds) or any(
            got not in right.split("|") for got, right in zip(ranked, kinds, strict=True)
        ):
            wrong.append(f"{name}: reasons {ranked}, not {kinds}")
    return wrong


def known(path: Path) -> dict[str, Any]:
    """``CASE`` of a program, as it is on the installed JAX; nothing of it is run."""
    text = path.read_text(encoding="utf-8").partition("\n\nimport ")[0]
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    case: dict[str, Any] = namespace["CASE"]
    # Where another JAX compiles otherwise than 0.10, with which the cases were measured.
    number = path.stem[:3]
    if number == "017" and JAX[:2] not in ((0, 9), (0, 10)):
        # What a static argument does whose hash changes is JAX's to say: here it compiles again.
        case["expect"]["tile"] |= {"traces": 2, "lowerings": 2, "compilations": 2}
        case["all"] = 4
    if number == "044" and JAX < (0, 5):
        case["expect"]["step"]["traces"] = 1  # the mesh is no part of an array's type yet
    if number == "073" and JAX < (0, 5):
        # A call does not use what was compiled ahead of time.
        case["expect"]["f"]["compilations"] = 2
        case["all"] = 2
    if number == "301" and JAX < (0, 6):
        pytest.skip("this JAX shows no object that tells two pmaps of one function apart")
    if number == "093" and JAX < (0, 5):
        pytest.skip("this JAX has no jax.ffi")
    return case


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_case(path, fresh):
    case = known(path)
    found = fresh(RUN, str(path), env=case["env"])
    assert mismatches(case, found) == []


def test_a_wrong_number_would_be_seen(fresh):
    """Each number of a case, made wrong, is told; so the test above can fail."""
    (path,) = (path for path in FILES if path.stem.startswith("001"))
    case = known(path)
    found = fresh(RUN, str(path))
    assert mismatches(case, found) == []
    for number in ("traces", "lowerings", "compilations", "disk_hits"):
        wrong = {**case, "expect": {"f": {**case["expect"]["f"], number: 7}}}
        assert mismatches(wrong, found) == [f"f: {number} {case['expect']['f'][number]}, not 7"]
    assert mismatches({**case, "all": 7}, found) == ["all 2, not 7"]
    wrong = {**case, "reasons_after_the_first": {"f": ["dtype"]}}
    assert mismatches(wrong, found) == ["f: reasons ['shape'], not ['dtype']"]
