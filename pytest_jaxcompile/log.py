"""Views of the log, and what a test expects of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, TypeAlias, overload

from pytest_jaxcompile import failure
from pytest_jaxcompile.errors import CompileCountError, CountUnavailableError, UnknownFunctionError
from pytest_jaxcompile.identity import Function, Target
from pytest_jaxcompile.probe import probe
from pytest_jaxcompile.recorder import Entry, Recorder
from pytest_jaxcompile.records import Compilation

Kind: TypeAlias = Literal["user", "ops", "all"]
Of: TypeAlias = "Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None"


class Recording:
    """A stretch of the log, and whether anything in it may have been missed."""

    def __init__(self, recorder: Recorder, accept: Callable[[Entry], bool] | None = None) -> None:
        self.recorder = recorder
        self._accept = accept
        self._entries = recorder.entries
        self._start = len(recorder.entries)
        self._stop: int | None = None
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
        if recorder.fault is not None:
            return f"pytest-jaxcompile itself failed while it read an event: {recorder.fault!r}"
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
                "logging.disable, or jax_explain_cache_misses set to False), so some may "
                "have been missed"
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
        return len(self._records())

    @property
    def traces(self) -> int:
        """Bodies run with tracers to the end, nested ones included.

        Of functions that are defined inside JAX, from JAX 0.9 on, outermost traces only:
        JAX does not tell of the others.
        """
        problem = self._recording.traces_problem()
        if problem is not None:
            raise CountUnavailableError(f"traces cannot be counted: {problem}")
        return sum(1 for _ in self._matching("trace"))

    @property
    def lowerings(self) -> int:
        """Programs turned from jaxpr into StableHLO."""
        return sum(1 for _ in self._matching("lowering"))

    @property
    def disk_hits(self) -> int:
        """Compilations that the persistent cache served; part of ``count``."""
        return sum(1 for record in self._records() if record.disk_hit)

    @property
    def seconds(self) -> float:
        """Seconds spent on tracing, lowering and compiling; nested compilations counted once."""
        return sum(record.seconds for record in self._records())

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
        return self._records()[index]

    def __iter__(self) -> Iterator[Compilation]:
        return iter(self._records())

    def __bool__(self) -> bool:
        return bool(self.count)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.count} compilations, {self.seconds:.3g} s>"

    def explain(self) -> str:
        """Every compilation with its signature, call site and reasons, as text."""
        return "\n".join(failure.lines(self._records())) or "nothing compiled"

    # -- reading ------------------------------------------------------------------

    def _records(self) -> list[Compilation]:
        return [e.compilation for e in self._matching("compilation") if e.compilation is not None]

    def _matching(self, did: str) -> Iterator[Entry]:
        problem = self._recording.problem()
        if problem is not None:
            raise CountUnavailableError(f"compilations cannot be counted: {problem}")
        found = False
        for entry in self._recording.entries(self._start, self._stop):
            if entry.did == did and self._accepts(entry.function):
                found = True
                yield entry
        if not found:
            for target in self._targets:
                self._check_known(target)

    def _accepts(self, function: Function) -> bool:
        if self._targets:
            return any(target.matches(function) for target in self._targets)
        return self._kind == "all" or function.eager_op == (self._kind == "ops")

    def _check_known(self, target: Target) -> None:
        """A name that nothing bears would make every expectation of zero pass."""
        pattern = target.pattern
        if pattern is None or any(f.matches_name(pattern) for f in self._recording.known()):
            return
        names = failure.live_names()
        function = Function("", "", "", None, False, frozenset(), None)
        for name, qualname, module in names:
            function = Function(name, qualname, module, None, False, frozenset(), None)
            if function.matches_name(pattern):
                return
        raise UnknownFunctionError(failure.unknown_name(pattern, [n for n, _, _ in names]))


class Expectation:
    """A block that may compile only so often. Can be nested and entered again."""

    def __init__(
        self,
        log: CompileLog,
        of: Of,
        kind: Kind,
        *,
        least: int | None = None,
        most: int | None = None,
        fail_fast: bool = False,
    ) -> None:
        functions = () if of is None else of if isinstance(of, (tuple, list)) else (of,)
        self._recording = log._blocks
        self._view = CompileView(self._recording, kind, tuple(map(Target, functions)))
        self._log = log
        self._least, self._most = least, most
        self._fail_fast = fail_fast
        self._seen: list[CompileView] = []

    def __enter__(self) -> CompileView:
        self._log._ready()
        seen = self._view._between(self._recording.position, None)
        self._seen.append(seen)
        if self._fail_fast and len(self._seen) == 1:
            self._recording.recorder.watchers.append(self._watch)
        return seen

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        seen = self._leave()
        if kind is None:
            self._log._ready()
            judge(seen, self._least, self._most)

    def _leave(self) -> CompileView:
        """End the innermost block; its view grows no more."""
        seen = self._seen.pop()
        seen._stop = self._recording.position
        if self._fail_fast and not self._seen:
            self._recording.recorder.watchers.remove(self._watch)
        return seen

    def _watch(self, entry: Entry) -> None:
        """Raise inside the call that compiles once too often."""
        __tracebackhide__ = True
        if self._most is None or not self._view._accepts(entry.function):
            return
        accept = self._recording._accept
        if accept is not None and not accept(entry):
            return
        for seen in self._seen:
            judge(seen, None, self._most)


def judge(seen: CompileView, least: int | None, most: int | None) -> None:
    """Raise :class:`CompileCountError` unless ``least <= seen.count <= most``."""
    __tracebackhide__ = True
    records = seen._records()
    if (least is None or len(records) >= least) and (most is None or len(records) <= most):
        return
    named = ", ".join(target.text for target in seen._targets)
    others = seen._recording.entries(seen._start, seen._stop)
    rest = [
        e.compilation for e in others if e.compilation is not None and not seen._accepts(e.function)
    ]
    raise CompileCountError(failure.message(records, rest, least, most, named))


class CompileLog(CompileView):
    """A view that can be asked for expectations: the fixture, and what ``count_compiles`` gives."""

    def __init__(self, recording: Recording, blocks: Recording | None = None) -> None:
        super().__init__(recording)
        self._blocks = blocks or recording
        """What block expectations look at: in a test also its fixtures' setup."""

    def exactly(self, n: int, *, of: Of = None, fail_fast: bool = False) -> Expectation:
        """The block compiles ``n`` times. Raises :class:`CompileCountError` otherwise."""
        return Expectation(self, of, "user", least=_checked(n), most=n, fail_fast=fail_fast)

    def at_most(self, n: int, *, of: Of = None, fail_fast: bool = False) -> Expectation:
        """The block compiles ``n`` times or less."""
        return Expectation(self, of, "user", most=_checked(n), fail_fast=fail_fast)

    def at_least(self, n: int, *, of: Of = None) -> Expectation:
        """The block compiles ``n`` times or more."""
        return Expectation(self, of, "user", least=_checked(n))

    def none(self, *, of: Of = None) -> Expectation:
        """Nothing compiles in the block, eager operations included unless ``of`` narrows it.

        Raises :class:`CompileCountError` at the call that compiles.
        """
        return Expectation(self, of, "user" if of is not None else "all", most=0, fail_fast=True)

    @contextmanager
    def watch(self, most: int, *, of: Of = None) -> Iterator[CompileView]:
        """Raise inside the block at the compilation past ``most``; nothing is judged at its end."""
        expectation = Expectation(self, of, "user", most=_checked(most), fail_fast=True)
        seen = expectation.__enter__()
        try:
            yield seen
        finally:
            expectation._leave()

    def per_call(
        self, function: Callable[..., Any], calls: Iterable[Any], *, of: Of = None
    ) -> list[int]:
        """Call ``function`` once for each of ``calls``, and tell how often each call compiled.

        A tuple in ``calls`` is several positional arguments, anything else one. Counts the
        compilations of ``function`` if it is jitted, else those of all users' functions in
        the call; ``of`` narrows to others.
        """
        self._ready()
        if of is None and compiles_itself(function):
            of = function
        counts = []
        for call in calls:
            expectation = Expectation(self, of, "user")
            with expectation as seen:
                function(*call) if isinstance(call, tuple) else function(call)
            counts.append(seen.count)
        return counts

    def by_function(self) -> dict[str, list[Compilation]]:
        """The records of each function, told apart by object."""
        found: dict[str, list[Compilation]] = {}
        for record in self:
            found.setdefault(record.key, []).append(record)
        return found

    def by_name(self) -> dict[str, list[Compilation]]:
        """The records of each ``module.qualname``."""
        found: dict[str, list[Compilation]] = {}
        for record in self:
            found.setdefault(record.name, []).append(record)
        return found

    def stop(self) -> None:
        """End the recording; the log can still be read."""
        self._recording.stop()
        if self._blocks is not self._recording:
            self._blocks.stop()

    def _ready(self) -> None:
        """Raise if no expectation could be judged."""
        problem = self._blocks.problem()
        if problem is None and self._blocks.ended:
            problem = "the recording has ended, so nothing that happens now is in it"
        if problem is None and self._recording.recorder.listening and probe().disabled:
            problem = "jax_disable_jit is on, so nothing is compiled at all"
        if problem is not None:
            raise CountUnavailableError(f"compilations cannot be counted: {problem}")


def compiles_itself(function: Any) -> bool:
    """Whether ``function`` is, or leads to, a jitted object rather than calling one inside."""
    return Target(function).jitted


def _checked(n: int) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise TypeError(f"a number of compilations is a non-negative int, not {n!r}")
    return n
