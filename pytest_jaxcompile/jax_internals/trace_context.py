"""The trace context: the options and contexts that are part of every cache key of JAX."""

from __future__ import annotations

from types import FunctionType
from typing import Any


class TraceContext:
    """Options and contexts, by the name a user knows. ``config`` is JAX's module of options."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._states: list[tuple[str, Any]] = []
        self._memo: tuple[int, tuple[tuple[str, str], ...]] | None = None
        self._read_states()

    def _read_states(self) -> None:
        """The objects that hold JAX's options and contexts, by the name a user knows.

        JAX names the parts of its trace context from 0.10; until 0.7 the function that
        builds the context does; between, all options are watched.
        """
        names: set[str] = set()
        if hasattr(self._config, "trace_context_names"):
            names = set(self._config.trace_context_names())
        elif isinstance(self._config.trace_context, FunctionType):
            names = set(self._config.trace_context.__code__.co_names)
        for variable, state in vars(self._config).items():
            if isinstance(state, type) or not hasattr(type(state), "value"):
                continue
            name = getattr(state, "_name", None) or variable
            known = not names or not names.isdisjoint((name, variable))
            if known and name not in _OUTSIDE_ANY_KEY:
                self._states.append((name, state))
        self._baseline = {name: _text(state.value) for name, state in self._states}

    def read(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        """The trace context of this thread: its fingerprint, and the options that were changed.

        The context is JAX's own tuple, a part of every cache key; the options are
        compared with their values when this process first looked.
        """
        fingerprint = hash(self._config.trace_context())
        memo = self._memo
        if memo is None or memo[0] != fingerprint:
            changed = []
            for name, state in self._states:
                text = _text(state.value)
                if text != self._baseline[name]:
                    changed.append((name, text))
            self._memo = memo = (fingerprint, tuple(changed))
        return memo


def _text(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value)
    try:
        text = str(value)
    except Exception:  # a value's own __str__ is the user's; its type still tells it apart
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 200 else text[:197] + "..."


# Options that change what is said, not what is compiled; we set the first ourselves.
_OUTSIDE_ANY_KEY = frozenset({"jax_explain_cache_misses", "jax_log_compiles"})
