"""Starting cold: forgetting what user code compiled."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pytest_jaxcompile.jax_internals.probe import probe
from pytest_jaxcompile.recording.functions import users
from pytest_jaxcompile.recording.recorder import recorder

Cold: TypeAlias = Literal["functions", "all", "none"]
COLD: tuple[Cold, ...] = ("functions", "all", "none")


def start_cold(what: Cold = "functions") -> None:
    """Forget what was compiled, and begin a new story of reasons.

    ``functions`` forgets users' functions and keeps JAX's eager operations warm;
    ``all`` is ``jax.clear_caches()``; ``none`` does nothing.
    """
    if what == "none":
        return
    p = probe()
    if what == "all":
        p.jax.clear_caches()
    else:
        p.forget(users)
    recorder.new_story()
