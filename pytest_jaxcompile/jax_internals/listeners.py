"""Listening to JAX, and leaving no trace of having listened.

Two sources: the events of ``jax.monitoring`` and, from JAX 0.9 on, one log
record per trace, which JAX writes while ``jax_explain_cache_misses`` is on.
What the user would not have seen without us is dropped or put back to the
level it would have had.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from pytest_jaxcompile.jax_internals.probe import COMPILE_EVENT, LOWER_EVENT, TRACE_EVENT, Probe

_PHASES: Final = frozenset({TRACE_EVENT, LOWER_EVENT, COMPILE_EVENT})
_DURATION: Final = "event_duration_secs"
_EVENT: Final = "event"
_SCALAR: Final = "scalar"
# Functions that log at WARNING instead of DEBUG while the explanations are on.
_LOUDER: Final = frozenset({"log_persistent_cache_miss", "_cache_write", "put_executable_and_time"})
# JAX compares a new trace with all that it keeps, and with those of its function at length.
MANY_OF_ONE: Final = 512
_MANY_TRACES: Final = 4000
"""Each costs a microsecond or so at every trace, one of the same function about twenty."""


class Tap:
    """Listeners and log filters, put in once and taken out once."""

    def __init__(
        self,
        p: Probe,
        on_phase: Callable[[str, float], None],
        on_event: Callable[[str], None],
        on_trace: Callable[[], None],
    ) -> None:
        self._probe = p
        self._on_phase = on_phase
        self._on_event = on_event
        self._traces = _TraceFilter(p, on_trace)
        self._tracing = False
        self._levels: list[tuple[logging.Logger, int]] = []
        self._watchdog = _Watchdog(self.repair)
        self._demote = _Demote()
        # One object each: a bound method is a new one at every access.
        self._duration = self._heard_duration
        self._plain = self._heard_event
        self._start = self._heard_start
        self.deaf = False
        """Whether an event may have been missed."""
        self.traces_lost = False
        self.logging_traces = True
        """Whether each trace is logged now; else only outermost ones can be told."""
        self.many_of_one = False
        """Whether one function has so many traces that it must not be compared with them."""
        self._made = _Made()
        self._accounted = 0
        """Traces made that an event told of, counted on from when logging ended."""

    def open(self) -> None:
        p = self._probe
        p.subscribe(_DURATION, self._duration)
        p.subscribe(_EVENT, self._plain)
        if p.announces_start:
            p.subscribe(_SCALAR, self._start)
        else:
            logger = logging.getLogger(p.phase_logger)
            self._watchdog.threshold = logger.getEffectiveLevel()
            logger.addFilter(self._watchdog)
            if self._watchdog.threshold > logging.DEBUG:
                self._levels.append((logger, logger.level))
                logger.setLevel(logging.DEBUG)

    def close(self) -> None:
        p = self._probe
        self.trace(False)
        p.unsubscribe(_DURATION, self._duration)
        p.unsubscribe(_EVENT, self._plain)
        p.unsubscribe(_SCALAR, self._start)
        logger = logging.getLogger(p.phase_logger)
        logger.removeFilter(self._watchdog)
        self._restore(logger, logging.DEBUG)

    def _restore(self, logger: logging.Logger, ours: int) -> None:
        """Put back the level of ``logger``, unless somebody else has set it since."""
        for changed, level in [pair for pair in self._levels if pair[0] is logger]:
            self._levels.remove((changed, level))
            if logger.level == ours:
                logger.setLevel(level)

    def trace(self, on: bool) -> None:
        """Have JAX log each trace, or no longer. Until 0.8 its events tell all."""
        p = self._probe
        if on == self._tracing or not p.traces_by_log:
            return
        self._tracing = on
        logger = logging.getLogger(p.trace_logger)
        others = [logging.getLogger(name) for name in p.louder_loggers]
        if on:
            self._traces.wanted = p.explains
            self._traces.threshold = logger.getEffectiveLevel()
            if self._traces.threshold > logging.WARNING:
                self._levels.append((logger, logger.level))
                logger.setLevel(logging.WARNING)
            self.traces_lost = False
            self.logging_traces = True
            logger.addFilter(self._traces)
            if not self._traces.wanted:
                for other in others:
                    other.addFilter(self._demote)
                p.explain(True)
        else:
            if not self._traces.wanted and p.explains:
                p.explain(False)
            logger.removeFilter(self._traces)
            self._restore(logger, logging.WARNING)
            for other in others:
                other.removeFilter(self._demote)

    def check_traces(self) -> None:
        """Note whether a trace record could be missed at this moment."""
        p = self._probe
        if self._tracing and not self.traces_lost:
            logger = logging.getLogger(p.trace_logger)
            heard = logger.isEnabledFor(logging.WARNING) and self._traces in logger.filters
            on = p.explains or not (self.logging_traces or self._traces.wanted)
            self.traces_lost = not (heard and on)
            self._check_unlogged(p.traces_cached[0])

    def check(self) -> None:
        """Note whether events were missed, and listen again."""
        p = self._probe
        missing = self._duration not in p.subscribers(_DURATION)
        if missing and not self._watched():
            self.deaf = True
        self.repair()
        self.check_traces()

    def _watched(self) -> bool:
        """Whether a phase would have told us that our listener was gone."""
        p = self._probe
        if p.announces_start:
            return self._start in p.subscribers(_SCALAR)
        logger = logging.getLogger(p.phase_logger)
        return logger.isEnabledFor(logging.DEBUG) and self._watchdog in logger.filters

    def repair(self) -> None:
        """Listen again if somebody removed our listeners (``clear_event_listeners``)."""
        p = self._probe
        p.subscribe(_DURATION, self._duration)
        p.subscribe(_EVENT, self._plain)
        if p.announces_start:
            p.subscribe(_SCALAR, self._start)

    def _heard_duration(self, event: str, duration: float, **_: Any) -> None:
        if event in _PHASES:
            self._on_phase(event, duration)

    def _heard_event(self, event: str, **_: Any) -> None:
        self._on_event(event)

    def _heard_start(self, event: str, _value: float, **_: Any) -> None:
        # Scalar listeners survive ``clear_event_listeners``, and a phase announces its start.
        if event in _PHASES:
            if self._duration not in self._probe.subscribers(_DURATION):
                self.repair()
            if event == TRACE_EVENT and self._tracing:
                self._trace_begins()

    def _trace_begins(self) -> None:
        """Spare JAX the comparison with the traces that it keeps where they are many."""
        made, kept = self._probe.traces_cached
        self._made.before.append(made)
        few = kept <= _MANY_TRACES and not self.many_of_one
        if few != self.logging_traces:
            self._check_unlogged(made)
            self._accounted = made
            self.logging_traces = few
            if not self._traces.wanted:
                self._probe.explain(self.logging_traces)

    def start_over(self) -> None:
        """A cold start: few traces are kept again, and what was missed before is noted now."""
        self.many_of_one = False
        if not self.logging_traces:
            made, _ = self._probe.traces_cached
            self._check_unlogged(made)
            self._accounted = made

    def made(self) -> int:
        """Traces made since the last one began on this thread, by all threads."""
        if not self._made.before:
            return 0
        made = self._probe.traces_cached[0] - self._made.before.pop()
        self._accounted += made
        return made

    def _check_unlogged(self, made: int) -> None:
        """Without the log, a trace that no event tells of shows in JAX's own counter only."""
        if not self.logging_traces and made != self._accounted and not self._made.before:
            self.traces_lost = True


class _Made(threading.local):
    def __init__(self) -> None:
        self.before: list[int] = []


class _TraceFilter(logging.Filter):
    """Hears JAX's record of a trace and hides it from users who did not ask for it."""

    def __init__(self, p: Probe, on_trace: Callable[[], None]) -> None:
        super().__init__()
        self._probe = p
        self._on_trace = on_trace
        self.wanted = False
        self.threshold = logging.WARNING

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith("TRACING CACHE MISS"):
            return record.levelno >= self.threshold
        self._on_trace()
        heard = record.levelno >= self.threshold
        return heard and (self.wanted or self._probe.explains_here)


class _Demote(logging.Filter):
    """Puts records back to DEBUG that JAX raised to WARNING for the explanations."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or record.funcName not in _LOUDER:
            return True
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


class _Watchdog(logging.Filter):
    """Until JAX 0.5: listens again just before an event, which is logged first."""

    def __init__(self, repair: Callable[[], None]) -> None:
        super().__init__()
        self._repair = repair
        self.threshold = logging.WARNING

    def filter(self, record: logging.LogRecord) -> bool:
        self._repair()
        return record.levelno >= self.threshold
