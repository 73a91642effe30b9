"""What a run ran on."""

from __future__ import annotations

import platform
import sys
from typing import Any

from pytest_jaxcompile import __version__


def environment() -> dict[str, Any]:
    """Versions, platform and devices of this process, as far as they are loaded.

    Imports nothing and starts no backend of JAX's: what the run did not use is None or empty.
    """
    found: dict[str, Any] = {
        "pytest_jaxcompile": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "pytest": _version("pytest"),
        "jax": _version("jax"),
        "jaxlib": _version("jaxlib"),
        "devices": [],
        "workers": 1,
        "process_index": 0,
        "process_count": 1,
    }
    if found["jax"] is not None:
        from pytest_jaxcompile.jax_internals.probe import probe

        found["devices"] = probe().device_names()
        if found["devices"]:
            jax = sys.modules["jax"]
            found["process_index"] = jax.process_index()
            found["process_count"] = jax.process_count()
    return found


def _version(name: str) -> str | None:
    return getattr(sys.modules.get(name), "__version__", None)
