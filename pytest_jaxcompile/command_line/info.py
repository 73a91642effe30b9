"""What is installed, and whether compilations can be counted with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def lines() -> Iterator[tuple[str, bool]]:
    """One fact each, and whether all is well with it. Imports JAX and starts its backend."""
    import pytest  # noqa: F401

    from pytest_jaxcompile.jax_internals.environment import environment

    problem = None
    try:
        import jax

        jax.devices()
    except Exception as error:  # a broken installation is what one asks about here
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
    found = environment()
    for name in ("pytest_jaxcompile", "python", "platform", "pytest", "jax", "jaxlib"):
        yield f"{name.replace('_', '-')}: {found[name] or 'not installed'}", bool(found[name])
    yield f"devices: {', '.join(found['devices']) or 'none'}", bool(found["devices"])
    if problem is not None:
        yield f"JAX does not start: {problem}", False
    if found["jax"]:
        from pytest_jaxcompile.jax_internals.support_check import changes

        changed = changes()
        yield f"counting: {'works' if not changed else 'does not work with this JAX'}", not changed
        yield from ((f"  {change}", False) for change in changed)
    yield "options of pytest:", True
    yield from ((f"  {option}", True) for option in _options())


class _Options:
    """Stands in for pytest's parser, to be told the options that exist."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def getgroup(self, *_: Any) -> _Options:
        return self

    def addoption(self, *names: str, metavar: str | None = None, **_: Any) -> None:
        self.found += [f"{name}={metavar}" if metavar else name for name in names]

    def addini(self, name: str, *_: Any, **__: Any) -> None:
        self.found.append(f"ini {name}")


def _options() -> list[str]:
    from pytest_jaxcompile.plugin.options import add_options

    options = _Options()
    add_options(options)  # type: ignore[arg-type]
    return options.found
