"""What a test expects of the log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias

from pytest_jaxcompile.counting import messages
from pytest_jaxcompile.counting.selection import Target
from pytest_jaxcompile.counting.views import CompileView, Kind, Recording
from pytest_jaxcompile.errors import CompileCountError, CountUnavailableError
from pytest_jaxcompile.recording.attribution import Entry
from pytest_jaxcompile.records import Compilation

Of: TypeAlias = "Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None"


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
        if of is not None and not functions:
            raise TypeError("of= is empty: leave it out to count every function of the user's")
        self._recording = log._blocks
        self._view = CompileView(self._recording, kind, tuple(map(Target, functions)))
        self._log = log
        self._least, self._most = least, most
        self._fail_fast = fail_fast
        self._seen: list[CompileView] = []
        log._waiting.append(self)
        caller = sys._getframe(2)
        self._made_at = f"{caller.f_code.co_filename}:{caller.f_lineno}"

    def __enter__(self) -> CompileView:
        if self in self._log._waiting:
            self._log._waiting.remove(self)
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
            judge(seen, self._least, self._most, early=True)


def judge(seen: CompileView, least: int | None, most: int | None, *, early: bool = False) -> None:
    """Raise :class:`CompileCountError` unless ``least <= seen.count <= most``.

    With ``early`` more may follow, and only too many are a failure.
    """
    __tracebackhide__ = True
    count = seen.count
    enough = early or least is None or count >= least
    if enough and (most is None or count <= most):
        return
    named = ", ".join(target.text for target in seen._targets)
    others = seen._recording.entries(seen._start, seen._stop)
    rest = [e.draft.record for e in others if e.draft is not None and not seen._accepts(e.function)]
    missing = list(_missing(seen)) if least is not None and count < least else []
    raise CompileCountError(
        messages.message(seen._records(), rest, least, most, named, missing=missing)
    )


def _missing(seen: CompileView) -> Iterator[str]:
    """Where compilations may be that were expected in a view and are not in it."""
    recording = seen._recording
    earlier = recording.entries(0, seen._start)
    before = [e.draft for e in earlier if e.draft is not None and seen._accepts(e.function)]
    if before:
        place = messages.shown_path(before[-1].called_from or "an unknown line")
        yield f"Compiled before this block: {len(before)}, the last time at {place}"
    if not seen._targets:
        return
    known = list(recording.known())
    for target in seen._targets:
        if target.pattern is None and not any(map(target.matches, known)):
            other = (
                "" if target.jitted else ": give what jax.jit returned, or the function under it"
            )
            yield f"Nothing jitted from {target.text} was traced or compiled so far{other}"
    if seen.count == 0 and recording.traces_problem() is None and seen.traces:
        yield f"Traced as a part of other programs, which .traces counts: {seen.traces}"


class CompileLog(CompileView):
    """A view that can be asked for expectations: the fixture, and what ``count_compiles`` gives."""

    def __init__(self, recording: Recording, blocks: Recording | None = None) -> None:
        super().__init__(recording)
        self._blocks = blocks or recording
        """What block expectations look at: in a test also its fixtures' setup."""
        self._waiting: list[Expectation] = []
        """Expectations that were made and not entered yet."""

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
        the call; ``of`` narrows to others. Raises ``TypeError`` for one array in place of calls.
        """
        if hasattr(calls, "__array__"):
            raise TypeError("calls is one array, not a list of calls: to call once, give [array]")
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

    def check_entered(self) -> None:
        """Raise :class:`CompileCountError` if an expectation was made but never entered."""
        __tracebackhide__ = True
        for expectation in self._waiting:
            raise CompileCountError(
                f"the expectation made at {messages.shown_path(expectation._made_at)} was never "
                "entered, so it checked nothing: write it as the head of a block, such as "
                "with jax_compiles.exactly(1):"
            )

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
        if problem is not None:
            raise CountUnavailableError(f"compilations cannot be counted: {problem}")


def compiles_itself(function: Any) -> bool:
    """Whether ``function`` is, or leads to, a jitted object rather than calling one inside."""
    return Target(function).jitted


def _checked(n: int) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise TypeError(f"a number of compilations is a non-negative int, not {n!r}")
    return n
