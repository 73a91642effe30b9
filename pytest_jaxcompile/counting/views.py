"""A stretch of the log, and views of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, overload

from pytest_jaxcompile.counting import messages
from pytest_jaxcompile.counting.selection import Target
from pytest_jaxcompile.errors import CountUnavailableError, UnknownFunctionError
from pytest_jaxcompile.jax_internals.probe import probe
from pytest_jaxcompile.recording.attribution import Entry
from pytest_jaxcompile.recording.functions import Function, name_matches
from pytest_jaxcompile.recording.history import Draft
from pytest_jaxcompile.recording.recorder import Recorder
from pytest_jaxcompile.records import Compilation

Kind: TypeAlias = Literal["user", "ops", "all"]


class Recording:
    """A stretch of the log, and whether anything in it may have been missed."""

    def __init__(self, recorder: Recorder, accept: Callable[[Entry], bool] | None = None) -> None:
        self.recorder = recorder
        self._accept = accept
        self._entries = recorder.entries
        self._start = len(recorder.entries)
        self._stop: int | None = None
        self._faults = recorder.faults
        self._disturbed = recorder.disturbed
        self._incomplete = recorder.incomplete
        self._problem: str | None = None
        self._traces_problem: str | None = None

    def stop(self) -> None:
        """End the recording: what comes later is not in it."""
        self.recorder.check()
        self._problem = self.problem()
        self._traces_problem = self.traces_problem()
        self._stop = len(self._entries)

    @property
    def ended(self) -> bool:
        return self._stop is not None

    @property
    def position(self) -> int:
        return len(self._entries) if self._stop is None else self._stop

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        if self._stop is None:
            self.recorder.check()
        end = self.position if stop is None else stop
        accept = self._accept
        for entry in self._entries[max(start, self._start) : end]:
            if accept is None or accept(entry):
                yield entry

    def known(self) -> Iterator[Function]:
        """Every function met since the log began."""
        return (entry.function for entry in self._entries)

    def problem(self) -> str | None:
        """Why no count can be given, or ``None``."""
        if self._stop is not None:
            return self._problem
        recorder = self.recorder
        recorder.check()
        if not recorder.listening and "jax" in sys.modules:
            return "JAX is loaded, but in a way that nobody could listen to it"
        if recorder.listening and probe().disabled:
            return "jax_disable_jit is on, so nothing is compiled at all"
        if recorder.faults != self._faults:
            return f"pytest-jaxcompile itself failed while it read an event: {recorder.fault}"
        if recorder.disturbed != self._disturbed:
            return (
                "the listeners that count compilations were removed from jax.monitoring while they "
                "were needed (jax.monitoring.clear_event_listeners?), so some may have been missed"
            )
        return None

    def traces_problem(self) -> str | None:
        if self._stop is not None:
            return self._traces_problem
        self.recorder.check()
        if self.recorder.incomplete != self._incomplete:
            return (
                "the log records that count traces were switched off (a disabled logger, "
                "logging.disable, jax_explain_cache_misses set to False, or more traces kept by "
                "JAX than it compares quickly), so some may have been missed"
            )
        return None


class CompileView(Sequence[Compilation]):
    """What was compiled in a stretch of time: a live, read-only sequence of records.

    The plain view holds the user's functions and their libraries'; ``ops`` the
    functions that JAX itself jits to run eager operations; ``all`` both.
    Every number raises :class:`CountUnavailableError` where it cannot be known.
    """

    def __init__(
        self,
        recording: Recording,
        kind: Kind = "user",
        targets: tuple[Target, ...] = (),
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self._recording = recording
        self._kind: Kind = kind
        self._targets = targets
        self._start = start
        self._stop = stop

    # -- numbers ------------------------------------------------------------------

    @property
    def count(self) -> int:  # type: ignore[override]  # the name the field uses
        """Executables obtained, built by XLA or loaded from the persistent cache."""
        __tracebackhide__ = True
        return len(self._drafts())

    @property
    def traces(self) -> int:
        """Bodies run with tracers to the end, nested ones included.

        Of functions that are defined inside JAX, from JAX 0.9 on, outermost traces only:
        JAX does not tell of the others.
        """
        __tracebackhide__ = True
        problem = self._recording.traces_problem()
        if problem is not None:
            raise CountUnavailableError(f"traces cannot be counted: {problem}")
        return len(list(self._matching("trace")))

    @property
    def lowerings(self) -> int:
        """Programs turned from jaxpr into StableHLO."""
        __tracebackhide__ = True
        return len(list(self._matching("lowering")))

    @property
    def disk_hits(self) -> int:
        """Compilations that the persistent cache served; part of ``count``."""
        __tracebackhide__ = True
        return sum(1 for draft in self._drafts() if draft.disk_hit)

    @property
    def seconds(self) -> float:
        """Seconds spent on tracing, lowering and compiling; nested compilations counted once."""
        __tracebackhide__ = True
        return sum(draft.seconds for draft in self._drafts())

    # -- narrowing ----------------------------------------------------------------

    @property
    def ops(self) -> CompileView:
        """Eager operations. Their number depends on what else ran in the process."""
        return self._like("ops", self._targets)

    @property
    def all(self) -> CompileView:
        """Users' functions and eager operations."""
        return self._like("all", self._targets)

    def of(self, *functions: Callable[..., Any] | str) -> CompileView:
        """Only these functions.

        A function is the jitted object, the function under it, or a partial or bound
        method of either, matched by identity; or a string: a function's name, its
        ``module.qualname``, or a glob of one. Raises ``TypeError`` for what is no function.
        """
        return self._like(self._kind, tuple(map(Target, functions)))

    def _like(self, kind: Kind, targets: tuple[Target, ...]) -> CompileView:
        return CompileView(self._recording, kind, targets, self._start, self._stop)

    def _between(self, start: int, stop: int | None) -> CompileView:
        return CompileView(self._recording, self._kind, self._targets, start, stop)

    # -- the sequence ---------------------------------------------------------------

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> Compilation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Compilation]: ...
    def __getitem__(self, index: int | slice) -> Compilation | list[Compilation]:
        found = self._drafts()[index]
        return [draft.record for draft in found] if isinstance(found, list) else found.record

    def __iter__(self) -> Iterator[Compilation]:
        return iter(self._records())

    def __bool__(self) -> bool:
        return bool(self.count)

    def __repr__(self) -> str:
        n = self.count
        times = f"{n} compilation{'' if n == 1 else 's'}"
        return f"<{type(self).__name__} of {times}, {self.seconds:.3g} s>"

    def explain(self) -> str:
        """Every compilation with its signature, call site and reasons, as text."""
        return "\n".join(messages.lines(self._records())) or "nothing compiled"

    # -- reading ------------------------------------------------------------------

    def _records(self) -> list[Compilation]:
        __tracebackhide__ = True
        return [draft.record for draft in self._drafts()]

    def _drafts(self) -> list[Draft]:
        """What can be counted without writing a record."""
        __tracebackhide__ = True
        found = []  # by a loop: a comprehension would be a frame to be seen
        for entry in self._matching("compilation"):
            if entry.draft is not None:
                found.append(entry.draft)
        return found

    def _matching(self, did: str) -> Iterator[Entry]:
        __tracebackhide__ = True
        problem = self._recording.problem()
        if problem is not None:
            raise CountUnavailableError(f"compilations cannot be counted: {problem}")
        for entry in self._recording.entries(self._start, self._stop):
            if entry.did == did and self._accepts(entry.function):
                yield entry
        for target in self._targets:
            if target.pattern is not None:
                self._check_known(target.pattern)

    def _accepts(self, function: Function) -> bool:
        if self._targets:
            return any(target.matches(function) for target in self._targets)
        return self._kind == "all" or function.eager_op == (self._kind == "ops")

    def _check_known(self, pattern: str) -> None:
        """A name that nothing bears would make every expectation of zero pass."""
        __tracebackhide__ = True
        if any(f.matches_name(pattern) for f in self._recording.known()):
            return
        names = messages.live_names() if "jax" in sys.modules else []
        if any(name_matches(pattern, *name) for name in names):
            return
        raise UnknownFunctionError(messages.unknown_name(pattern, names))
