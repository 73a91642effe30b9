"""Does the installed JAX still say what the counts are read from?

Looked up in JAX's own source, by name: running a function to find out would start
a backend before the user's configuration is complete, and could write to the user's
persistent cache. What only shows at run time is checked while events are read: a
compilation whose call cannot be found makes every count an error, not a number.
"""

from __future__ import annotations

import re
from typing import Final

from pytest_jaxcompile.errors import UnsupportedJaxError
from pytest_jaxcompile.jax_internals.probe import COMPILE_EVENT, LOWER_EVENT, TRACE_EVENT, probe

_READ: Final = (
    ("pjit", "cache_miss", "fun jit_info args kwargs"),
    ("pjit", "_infer_params", "fun ji args kwargs"),
    ("pjit", "_trace_for_jit|_create_pjit_jaxpr", "fun jaxpr"),
    ("pjit", "_resolve_and_lower", "args jaxpr name"),
    ("pjit", "_pjit_call_impl_python", "args jaxpr name"),
    ("pxla", "_cached_lowering_to_hlo", "lowering_result"),
    ("pxla", "_cached_compilation", "computation da compiler_options_kvs"),
)
"""File, function and the local variables that are read of its frame."""
_EVENTS: Final = (TRACE_EVENT, LOWER_EVENT, COMPILE_EVENT)

_result: tuple[object, list[str]] | None = None


def require_supported() -> None:
    """Raise :class:`UnsupportedJaxError`, naming what changed, unless JAX can be read."""
    found = changes()
    if found:
        import jax

        raise UnsupportedJaxError(jax.__version__, found)


def changes() -> list[str]:
    """What the installed JAX no longer says, one sentence each; empty if all is as known.

    Loads JAX. The answer is kept for the process.
    """
    global _result
    try:
        p = probe()
    except Exception as error:
        return [f"its internals could not be opened: {type(error).__name__}: {error}"]
    if _result is None or _result[0] is not p.jax:
        sources = {name: _text(path) for name, path in p.sources.items()}
        _result = (p.jax, compare(sources, p.traces_by_log) + p.missing())
    return list(_result[1])


def compare(sources: dict[str, str], traces_by_log: bool) -> list[str]:
    """What is read and not found in the texts of JAX's modules."""
    found = []
    for module, function, variables in _READ:
        body = _body(sources[module], function)
        name = function.replace("|", " or ")
        if body is None:
            found.append(f"no function {name} in {module}.py")
            continue
        missing = [v for v in variables.split() if not re.search(rf"\b{v}\b", body)]
        if missing:
            found.append(f"{name} in {module}.py has no {', no '.join(missing)}")
    for event in _EVENTS:
        if f'"{event}"' not in sources["dispatch"]:
            found.append(f"no event {event}")
    entry = _body(sources["pjit"], "_infer_params") or ""
    if traces_by_log and "entry.pjit_params" not in entry:
        found.append("_infer_params in pjit.py keeps no entry that tells a finished trace")
    if traces_by_log and "TRACING CACHE MISS" not in sources["partial_eval"]:
        found.append("no log record for each trace")
    return found


def _body(source: str, function: str) -> str | None:
    """The text of a function, nested or not, up to the next line at its own depth or above."""
    start = re.search(rf"^( *)def (?:{function})\(", source, re.MULTILINE)
    if start is None:
        return None
    indent = len(start.group(1))
    end = re.compile(rf"^ {{0,{indent}}}[^\s)]", re.MULTILINE).search(source, start.end())
    return source[start.start() : end.start() if end else None]


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
