"""Count what JAX compiles, and say why it compiled again."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_jaxcompile.counting.expectations import CompileLog as CompileLog
    from pytest_jaxcompile.counting.script import count_compiles as count_compiles
    from pytest_jaxcompile.counting.views import CompileView as CompileView
    from pytest_jaxcompile.errors import CompileCountError as CompileCountError
    from pytest_jaxcompile.errors import CountUnavailableError as CountUnavailableError
    from pytest_jaxcompile.errors import UnknownFunctionError as UnknownFunctionError
    from pytest_jaxcompile.errors import UnsupportedJaxError as UnsupportedJaxError
    from pytest_jaxcompile.records import Argument as Argument
    from pytest_jaxcompile.records import Compilation as Compilation
    from pytest_jaxcompile.records import Reason as Reason
    from pytest_jaxcompile.records import Signature as Signature

_HOMES = {
    "Argument": "records",
    "Compilation": "records",
    "CompileCountError": "errors",
    "CompileLog": "counting.expectations",
    "CompileView": "counting.views",
    "CountUnavailableError": "errors",
    "Reason": "records",
    "Signature": "records",
    "UnknownFunctionError": "errors",
    "UnsupportedJaxError": "errors",
    "count_compiles": "counting.script",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Importing the plugin runs this module: it must cost nothing until something is used.
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
