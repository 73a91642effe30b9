"""The time that pytest-jaxcompile itself takes while JAX compiles.

JAX calls its listeners one after the other, and a logger its filters: what passes between one
of ours that was there before the recording and one that came after is the recording's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import jax.monitoring
from jax._src import config, monitoring

from pytest_jaxcompile import CompileLog, count_compiles

_KINDS: Final = ("event_duration_secs", "event", "scalar")
_TRACES: Final = logging.getLogger("jax._src.interpreters.partial_eval")


class Meter:
    """CPU seconds of this thread that a recording took, by what JAX said."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = 0.0

    def take(self) -> float:
        """What was measured since the last time."""
        found = sum(self.seconds.values())
        self.seconds = {}
        return found

    def before(self, *_: Any, **__: Any) -> bool:
        self._began = time.thread_time()
        return True

    def after(self, event: Any, *_: Any, **__: Any) -> bool:
        passed = time.thread_time() - self._began
        name = event.rpartition("/")[2] if isinstance(event, str) else "log record of the trace"
        self.seconds[name] = self.seconds.get(name, 0.0) + passed
        return False


@contextmanager
def metered() -> Iterator[tuple[Meter, CompileLog]]:
    """A recording, and a meter of its own time."""
    meter = Meter()
    for kind in _KINDS:
        getattr(jax.monitoring, f"register_{kind}_listener")(meter.before)
    _TRACES.addFilter(meter.before)
    try:
        # A user who asked for JAX's explanations sees them: so our filter lets them through to
        # the next one, which is the meter's and drops them.
        with count_compiles() as log, config.explain_cache_misses(True):
            for kind in _KINDS:
                getattr(jax.monitoring, f"register_{kind}_listener")(meter.after)
            _TRACES.addFilter(meter.after)
            yield meter, log
    finally:
        _TRACES.removeFilter(meter.before)
        _TRACES.removeFilter(meter.after)
        for kind in _KINDS:
            listeners = getattr(monitoring, f"_{kind}_listeners")
            listeners[:] = [f for f in listeners if f not in (meter.before, meter.after)]
