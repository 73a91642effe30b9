"""What each function was compiled for until now, and so why it is compiled again.

While JAX compiles, only a draft is kept of each compilation. Its record, with the signature
and the reasons, is written when somebody reads it; the drafts before it are read first, so
that a record says the same whenever it is read.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from pytest_jaxcompile.errors import CountUnavailableError
from pytest_jaxcompile.reasons.kinds import with_hints
from pytest_jaxcompile.reasons.nearest import Versions, differences
from pytest_jaxcompile.recording.functions import Function
from pytest_jaxcompile.recording.program import Program
from pytest_jaxcompile.records import Compilation, Reason, Signature

_MAX_STORIES: Final = 4096
_MAX_REPEATED: Final = 65_536
_MAX_DRAFTS: Final = 1024
"""Drafts that wait to be read: what they hold of JAX is more than what a record holds."""
_DERIVED: Final = frozenset({"checkpoint", "evaluation"})
"""Programs for which JAX traces the function anew each time."""


@dataclass(slots=True, eq=False)
class Draft:
    """A compilation as it was heard. Times are in seconds, as in :class:`Compilation`."""

    history: History | None
    """``None`` once it was read."""
    function: Function
    program: Program | None
    """``None`` once it was read."""
    called_from: str | None
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    disk_hit: bool
    phase: str
    thread: str
    start: float
    number: int
    traces: int
    """How often its function had been traced."""
    _record: Compilation | None = field(default=None, init=False)
    _fault: str | None = field(default=None, init=False)

    @property
    def seconds(self) -> float:
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    @property
    def record(self) -> Compilation:
        """The record. Raises :class:`CountUnavailableError` if we fail to write it."""
        if self._record is None and self.history is not None:
            self.history.read()
        if self._record is None:
            raise CountUnavailableError(
                f"pytest-jaxcompile itself failed while it read compilation {self.number} of the "
                f"process, of {self.function.name}: {self._fault}"
            )
        return self._record

    def write(self) -> None:
        """For the history: write the record, after those of all drafts before."""
        program, self.program = self.program, None
        history, self.history = self.history, None
        assert program is not None
        assert history is not None
        function = self.function
        try:
            signature = program.signature()
            self._record = Compilation(
                function=function.name,
                qualname=function.qualname,
                module=function.module,
                defined_at=function.defined_at,
                called_from=self.called_from,
                signature=signature,
                trace_seconds=self.trace_seconds,
                lower_seconds=self.lower_seconds,
                compile_seconds=self.compile_seconds,
                disk_hit=self.disk_hit,
                eager_op=function.eager_op,
                phase=self.phase,
                thread=self.thread,
                reasons=history.reasons(function, signature, self.traces),
                start=self.start,
                number=self.number,
                key=f"{function.module}.{function.qualname}#{_number(function.story)}",
            )
        except BaseException as error:
            # As text: an exception holds the frames it went through, and what they hold.
            self._fault = f"{type(error).__name__}: {error}"
            if not isinstance(error, Exception):
                raise  # the user's interrupt; what was half written is not written again


class History:
    """The stories of all functions since a cold start, bounded in number."""

    def __init__(self) -> None:
        self._drafts: deque[Draft] = deque()
        self._stories: OrderedDict[Hashable, Versions] = OrderedDict()
        self._definitions: OrderedDict[Hashable, Versions] = OrderedDict()
        self._traced_at: dict[tuple[Hashable, int], int] = {}
        """How often a story's function had been traced when it was last compiled for a
        signature."""
        self._traces: Counter[Hashable] = Counter()
        """How often each story's function was traced until now."""
        self._lock = threading.RLock()

    def traced(self, function: Function) -> None:
        if len(self._traces) > _MAX_REPEATED:
            self._traces.clear()
        self._traces[function.story] += 1

    def traces(self, function: Function) -> int:
        return self._traces[function.story]

    def add(self, draft: Draft) -> None:
        self._drafts.append(draft)
        if len(self._drafts) > _MAX_DRAFTS:
            self.read()

    def read(self) -> None:
        """Write the records of all drafts, in the order in which they were compiled."""
        with self._lock:
            while self._drafts:
                self._drafts.popleft().write()

    def reasons(self, function: Function, signature: Signature, traces: int) -> tuple[Reason, ...]:
        """Why ``function``, traced ``traces`` times by then, was compiled for ``signature``."""
        story, definition = function.story, function.definition
        if function.eager_op:
            # JAX makes and drops the functions of its operations as it likes.
            story = ("op", definition)
        own, earlier = self._stories.get(story), self._definitions.get(definition)
        reasons: tuple[Reason, ...] = ()
        compared = own if own is not None else earlier
        if compared is not None:
            nearest = compared.nearest(signature)
            reasons = differences(nearest, signature) if nearest is not None else ()
            if own is None and not function.eager_op:
                new = f"a new object of {function.qualname}"
                reasons = (Reason("new_function", None, "an earlier one", new), *reasons)
            elif not reasons and not function.eager_op:
                again = self._traced_at.get((function.story, hash(signature))) != traces
                reasons = (_repeated(signature, again),)
            reasons = with_hints(reasons, signature, compared, function.name)
        if len(self._traced_at) > _MAX_REPEATED:
            self._traced_at.clear()
        self._traced_at[function.story, hash(signature)] = traces
        for stories, key in ((self._stories, story), (self._definitions, definition)):
            if key not in stories:
                stories[key] = Versions()
            stories[key].add(signature)
            stories.move_to_end(key)
            if len(stories) > _MAX_STORIES:
                stories.popitem(last=False)
        return reasons


def _number(story: Hashable) -> str:
    """The numbers of the objects that make a story."""
    if isinstance(story, tuple):
        return "-".join(str(part) for part in story if isinstance(part, int))
    return str(story)


def _repeated(signature: Signature, again: bool) -> Reason:
    """Why a signature that was compiled before was compiled again.

    A program of a transformation is told by more than its arguments: as long as the function
    was not traced ``again``, nothing was forgotten, and it is another program.
    """
    derived = not _DERIVED.isdisjoint(signature.transform)
    if derived or (signature.transform and not again):
        text = " of ".join(signature.transform)
        return Reason("transform", None, text, f"another {text} of it")
    return Reason("evicted")
