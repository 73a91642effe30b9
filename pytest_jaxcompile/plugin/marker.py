"""The marker ``jax_compiles``: its function signature is its schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_jaxcompile.plugin.options import MARKER


@dataclass(frozen=True)
class Demand:
    """What one marker asks of its test."""

    least: int | None
    most: int | None
    of: tuple[Any, ...]
    fail_fast: bool
    limit: int | None

    @property
    def counts(self) -> bool:
        return self.least is not None or self.most is not None


def jax_compiles(
    *,
    exactly: int | None = None,
    at_most: int | None = None,
    at_least: int | None = None,
    of: Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None = None,
    fail_fast: bool = False,
    limit: int | None = None,
) -> Demand:
    """Check the marker's arguments. Raises ``TypeError`` for a wrong one."""
    numbers = {"exactly": exactly, "at_most": at_most, "at_least": at_least, "limit": limit}
    for name, n in numbers.items():
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 0):
            raise TypeError(f"{name} must be a non-negative int, not {n!r}")
    if all(n is None for n in numbers.values()):
        raise TypeError("give one of exactly=, at_most=, at_least= or limit=")
    if exactly is not None and (at_most is not None or at_least is not None):
        raise TypeError("exactly= excludes at_most= and at_least=")
    if at_least is not None and at_most is not None and at_least > at_most:
        raise TypeError("at_least= is more than at_most=")
    if not isinstance(fail_fast, bool):
        raise TypeError(f"fail_fast must be True or False, not {fail_fast!r}")
    if fail_fast and exactly is None and at_most is None:
        raise TypeError("fail_fast= needs exactly= or at_most=")
    if of is not None and exactly is None and at_most is None and at_least is None:
        raise TypeError("of= needs exactly=, at_most= or at_least=; limit= holds for each function")
    functions = () if of is None else tuple(of) if isinstance(of, (list, tuple)) else (of,)
    if of is not None and not functions:
        raise TypeError("of= is empty")
    for function in functions:
        if not (isinstance(function, str) or callable(function)):
            raise TypeError(f"of={function!r} is no function and no name of one")
    return Demand(
        at_least if exactly is None else exactly,
        at_most if exactly is None else exactly,
        functions,
        fail_fast,
        limit,
    )


def demands(item: pytest.Item) -> list[Demand]:
    """What the item's markers ask: those of the closest of function, class and module.

    A limit is asked for separately: the closest that is given holds. Raises
    :class:`pytest.UsageError` for a malformed marker.
    """
    found: list[Demand] = []
    closest = None
    limit = None
    for node, mark in item.iter_markers_with_node(MARKER):
        try:
            demand = jax_compiles(*mark.args, **mark.kwargs)
        except TypeError as error:
            raise pytest.UsageError(
                f"{item.nodeid}: malformed marker @pytest.mark.{MARKER}: {_told(error, mark)}"
            ) from None
        limit = demand.limit if limit is None else limit
        if demand.counts and closest in (None, node):
            closest = node
            found.append(demand)
    if limit is not None:
        found.append(Demand(None, None, (), False, limit))
    return found


def _told(error: TypeError, mark: pytest.Mark) -> str:
    """What is wrong, and of a name that is none of ours, what there is."""
    names = list(inspect.signature(jax_compiles).parameters)
    unknown = [name for name in mark.kwargs if name not in names]
    if not unknown:
        return str(error).replace("jax_compiles()", "it", 1)
    text = f"it has no {unknown[0]}=, but {', '.join(f'{name}=' for name in names)}"
    if "none" in unknown:
        text += "; exactly=0 is no compilation, and only the fixture's none() counts eager ops too"
    return text
