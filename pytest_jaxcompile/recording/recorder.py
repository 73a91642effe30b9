"""One log for the process: what JAX traced, lowered and compiled, in order."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Literal

from pytest_jaxcompile.errors import CompileCountError
from pytest_jaxcompile.jax_internals.call_frames import Stack, is_of_call, jaxpr_of
from pytest_jaxcompile.jax_internals.listeners import MANY_OF_ONE, Tap
from pytest_jaxcompile.jax_internals.probe import (
    COMPILE_EVENT,
    DISK_HIT_EVENT,
    LOWER_EVENT,
    TRACE_EVENT,
    probe,
)
from pytest_jaxcompile.recording.arguments import of_call
from pytest_jaxcompile.recording.attribution import Attached, Entry, Lately, UnderWay, by_definition
from pytest_jaxcompile.recording.functions import Function, forget_functions, identify
from pytest_jaxcompile.recording.history import Draft, History
from pytest_jaxcompile.recording.open_traces import OpenTraces
from pytest_jaxcompile.recording.program import Program
from pytest_jaxcompile.records import Signature

_MAX_TRACED: Final = 256
"""Functions of a thread that were traced and not compiled yet, whose time is remembered."""


class Recorder:
    """Writes the log while at least one recording is open."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.watchers: list[Callable[[Entry], None]] = []
        self.scope: str | None = None
        self.phase = "session"
        self.strays: Callable[[], str | None] = lambda: None
        self.fault: str | None = None
        """What went wrong last in our own code while an event was read."""
        self.faults = 0
        """How often something did."""
        self.incomplete = 0
        """How often a trace may have been missed."""
        self.disturbed = 0
        """How often an event may have been missed."""
        self._lock = threading.RLock()
        self._open = 0
        self._tracing = 0
        self._tap: Tap | None = None
        self._thread = UnderWay()
        self._lately = Lately()
        self._jaxprs = Attached()
        self._modules = Attached()
        self._history = History()
        self._count = 0
        self._traces = OpenTraces(self._trace_ended)

    # -- opening and closing ------------------------------------------------------

    def open(self, traces: bool) -> None:
        """Begin to listen; with ``traces`` also to what needs JAX's trace log."""
        with self._lock:
            if self._tap is None:
                self._tap = Tap(probe(), self._on_phase, self._on_event, self._on_trace)
                self._tap.open()
            self._open += 1
            self._tracing += traces
            self._tap.trace(self._tracing > 0)

    def close(self, traces: bool) -> None:
        with self._lock:
            assert self._tap is not None
            self._open -= 1
            self._tracing -= traces
            self.check()
            if self._tracing == 0:
                self._tap.trace(False)
            if self._open == 0:
                self._tap.close()
                self._tap = None
                # Views hold the list they were cut from; the next recording starts another.
                self.entries = []
                self._history = History()
                self._lately = Lately()
                self._traces.clear()
                forget_functions()

    @property
    def listening(self) -> bool:
        return self._tap is not None

    def check(self) -> None:
        """Note what may have been missed until now, and listen again."""
        tap = self._tap
        if tap is None:
            return
        tap.check()
        if tap.deaf:
            tap.deaf = False
            self.disturbed += 1
        if tap.traces_lost:
            tap.traces_lost = False
            self.incomplete += 1
        self._traces.settle()

    def trim(self, upto: int) -> int:
        """Begin another list if no recording but the caller's reads this one; its new position."""
        with self._lock:
            if self._open > 1:
                return upto
            self.entries = self.entries[upto:]
            return 0

    def new_story(self) -> None:
        """From here on nothing was compiled before: what a cold start means for reasons."""
        with self._lock:
            self._history = History()
            if self._tap is not None:
                self._tap.start_over()
                self.check()

    def _failed_to_read(self, error: Exception) -> None:
        # As text: an exception holds the frames it went through, and what they hold.
        self.fault = f"{type(error).__name__}: {error}"
        self.faults += 1

    # -- what JAX says ------------------------------------------------------------

    def _on_event(self, event: str) -> None:
        if event == DISK_HIT_EVENT:
            self._thread.disk_hit = True

    def _on_phase(self, event: str, duration: float) -> None:
        frame = sys._getframe(2)
        try:
            if event == TRACE_EVENT:
                self._traced(probe().read(frame, traced=True), duration)
            elif event == LOWER_EVENT:
                self._lowered(probe().read(frame), duration)
            elif event == COMPILE_EVENT:
                entry = self._compiled(probe().read(frame), duration)
                if entry is not None:
                    for watcher in list(self.watchers):
                        watcher(entry)
        except CompileCountError:
            raise
        except Exception as error:
            self._failed_to_read(error)

    def _on_trace(self) -> None:
        """JAX 0.9 and later logs a trace before it runs the body; whether it ends is seen later."""
        try:
            frame = sys._getframe(2)
            if not is_of_call(frame):
                return
            stack = probe().read(frame, traced=True)
            if stack.fun is not None:
                function = identify(stack, probe())
                if self._tap is not None and self._history.traces(function) >= MANY_OF_ONE:
                    self._tap.many_of_one = True
                self._traces.begin(stack.entry, self._entry("trace", function))
        except Exception as error:
            self._failed_to_read(error)

    def _traced(self, stack: Stack, duration: float) -> None:
        p = probe()
        own = self._own(duration)
        tap = self._tap
        made = tap.made() if tap is not None and p.traces_by_log else 0
        logged = tap is None or tap.logging_traces
        function = None
        if p.traces_by_log:
            if tap is not None:
                tap.check_traces()
            function = self._traces.resolve(stack)
        if stack.fun is None:
            return
        if not stack.finished:
            if not logged and function is None:
                self._traces.fail(stack.entry, self._entry("trace", identify(stack, p)))
            return
        resolved = function is not None
        function = function or identify(stack, p)
        thread = self._thread
        start = time.time() - duration
        for story, (began, _) in list(thread.traced.items()):
            if began is not None and began >= start:
                del thread.traced[story]
        # Of what is traced ahead of time nobody knows when, or if, it is compiled.
        thread.traced[function.story] = (None if stack.ahead_of_time else start, own)
        if len(thread.traced) > _MAX_TRACED:
            del thread.traced[next(iter(thread.traced))]
        jaxpr = jaxpr_of(stack.jaxpr)
        new = self._jaxprs.get(jaxpr) is None
        if new and jaxpr is not None:
            self._lately.meet(function, None, (jaxpr,))
        if not logged and made > 1:
            self.incomplete += 1  # nested traces, of whatever function
        unlogged = new and made and not resolved and not (function.logged and logged)
        if unlogged or not p.traces_by_log:
            self._append(self._entry("trace", function))
        if jaxpr is not None and new:
            part = of_call(stack, p) if stack.ahead_of_time else None
            self._jaxprs.put(jaxpr, (function, part))
            if part is not None:
                self._lately.meet(function, part)

    def _trace_ended(self, trace: Entry, entry: Any) -> None:
        """Count it. One without an event may be run alone, as by ``jax.checkpoint``."""
        self._append(trace)
        if entry is not None:
            jaxpr = jaxpr_of(entry.pjit_params.params["jaxpr"])
            if self._jaxprs.get(jaxpr) is None:
                self._jaxprs.put(jaxpr, (trace.function, None))
                self._lately.meet(trace.function, None, (jaxpr,))

    def _lowered(self, stack: Stack, duration: float) -> None:
        own = self._own(duration)
        if not stack.finished:
            return
        self._traces.settle()
        function, part = self._who(stack)
        if stack.lowered is not None:
            program = None
            if stack.fun is not None and not stack.ahead_of_time:
                # The same call compiles next: what was read of it is read once.
                self._thread.call = (id(stack.lowered), function, part)
            else:
                program = Program(part, stack, probe())
            self._modules.put(stack.lowered, (function, program, own))
        if stack.related and stack.fun is not None:
            self._lately.meet(function, part, stack.related)
        for jaxpr in (stack.jaxpr, *stack.related):
            inner = jaxpr_of(jaxpr)
            if inner is not None and self._jaxprs.get(inner) is None:
                self._jaxprs.put(inner, (function, part))
        self._append(self._entry("lowering", function))

    def _compiled(self, stack: Stack, duration: float) -> Entry | None:
        thread = self._thread
        disk_hit, thread.disk_hit = thread.disk_hit, False
        call, thread.call = thread.call, None
        own = self._own(duration)
        if not stack.finished:
            return None
        self._traces.settle()
        p = probe()
        lowered = self._modules.get(stack.computation)
        lower_seconds = 0.0
        if lowered is not None:
            lower_seconds = lowered[2]
            self._modules.put(stack.computation, (*lowered[:2], 0.0))
        if stack.fun is None and stack.jaxpr is None and lowered and lowered[1] is not None:
            function, program = lowered[0], lowered[1].compiled(stack)  # ``Lowered.compile()``
        else:
            if call is not None and call[0] == id(stack.computation):
                function, part = call[1:]
            else:
                function, part = self._who(stack)
            program = Program(part, stack, p)
        began, trace_seconds = thread.traced.pop(function.story, (None, 0.0))
        start = time.time() - duration - lower_seconds - trace_seconds
        if began is not None and call is not None:
            start = began
        with self._lock:
            self._count += 1
            history = self._history
            draft = Draft(
                history=history,
                function=function,
                program=program,
                called_from=stack.called_from,
                trace_seconds=trace_seconds,
                lower_seconds=lower_seconds,
                compile_seconds=own,
                disk_hit=disk_hit,
                phase=self.phase,
                thread=threading.current_thread().name,
                start=start,
                number=self._count,
                traces=history.traces(function),
            )
            history.add(draft)
            entry = self._entry("compilation", function, draft)
            self._append(entry)
        thread.compiled.append((time.time(), draft.seconds))
        if stack.fun is not None and not stack.related:
            self._lately.meet(function, program.part)
        return entry

    # -- reading ------------------------------------------------------------------

    def _who(self, stack: Stack) -> tuple[Function, Signature]:
        """The function that a program belongs to, and the caller's part of its signature."""
        p = probe()
        if stack.fun is not None:
            return identify(stack, p), of_call(stack, p)
        for jaxpr in (stack.jaxpr, *stack.related):
            known = self._jaxprs.get(jaxpr_of(jaxpr)) if jaxpr is not None else None
            if known is not None:
                return known[0], known[1] or Signature()
        known = self._modules.get(stack.computation) if stack.computation is not None else None
        if known is not None and known[1] is not None:
            return known[0], known[1].part
        return by_definition(stack, self._lately, p)

    def _own(self, duration: float) -> float:
        """``duration`` less what was compiled inside it on this thread."""
        compiled = self._thread.compiled
        if not compiled:
            return duration
        start = time.time() - duration
        inside = 0.0
        for ended, seconds in reversed(compiled):
            if ended <= start:
                break
            inside += seconds
        return max(0.0, duration - inside)

    def _entry(
        self,
        did: Literal["trace", "lowering", "compilation"],
        function: Function,
        draft: Draft | None = None,
    ) -> Entry:
        stray = self.strays()
        if stray is not None:
            return Entry(did, function, stray, "after", draft)
        return Entry(did, function, self.scope, self.phase, draft)

    def _append(self, entry: Entry) -> None:
        if entry.did == "trace":
            self._history.traced(entry.function)
        self.entries.append(entry)


recorder: Final = Recorder()
