"""The marker ``jax_compiles``: its function signature is its schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

NAME = "jax_compiles"
HELP = (
    "jax_compiles(*, exactly=N, at_most=N, at_least=N, of=function, fail_fast=False, limit=N): "
    "the test's call phase, started cold, compiles so many functions; of= narrows to a function, "
    "its name or several; limit= replaces --jax-compile-limit for this test."
)


@dataclass(frozen=True)
class Demand:
    """What one marker asks of its test."""

    least: int | None
    most: int | None
    of: tuple[Any, ...]
    fail_fast: bool
    limit: int | None


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
    functions = () if of is None else tuple(of) if isinstance(of, (list, tuple)) else (of,)
    for function in functions:
        if not (isinstance(function, str) or callable(function)):
            raise TypeError(f"of={function!r} is no function and no name of one")
    return Demand(
        at_least if exactly is None else exactly,
        at_most if exactly is None else exactly,
        functions,
        bool(fail_fast),
        limit,
    )


def demands(item: pytest.Item) -> list[Demand]:
    """The markers that apply to ``item``: those of the closest of function, class and module.

    Raises :class:`pytest.UsageError` for a malformed one.
    """
    found: list[Demand] = []
    closest = None
    for node, mark in item.iter_markers_with_node(NAME):
        if closest is not None and node is not closest:
            break
        closest = node
        try:
            found.append(jax_compiles(*mark.args, **mark.kwargs))
        except TypeError as error:
            text = str(error).replace("jax_compiles()", "it", 1)
            raise pytest.UsageError(
                f"{item.nodeid}: malformed marker @pytest.mark.{NAME}: {text}"
            ) from None
    return found
