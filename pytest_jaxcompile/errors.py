"""What can go wrong, in words."""

from __future__ import annotations

from collections.abc import Sequence


class CompileCountError(AssertionError):
    """A function compiled more often, or less often, than the test expects."""

    __module__ = "pytest_jaxcompile"


class CountUnavailableError(RuntimeError):
    """The question cannot be answered, so no number is given."""

    __module__ = "pytest_jaxcompile"


class UnsupportedJaxError(CountUnavailableError):
    """The installed JAX no longer says what the counts are read from."""

    def __init__(self, version: str, changes: Sequence[str]) -> None:
        super().__init__(
            f"pytest-jaxcompile cannot count compilations with JAX {version}, which changed:\n"
            + "\n".join(f"  - {change}" for change in changes)
            + "\nUpdate pytest-jaxcompile, or use a JAX that it supports."
        )


class UnknownFunctionError(CountUnavailableError):
    """``of=`` names a function that nothing has compiled and nothing has jitted."""
