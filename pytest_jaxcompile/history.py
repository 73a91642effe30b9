"""What each function was compiled for until now, and so why it is compiled again."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Final

from pytest_jaxcompile.explain import Story, differences
from pytest_jaxcompile.hints import with_hints
from pytest_jaxcompile.identity import Function
from pytest_jaxcompile.records import Reason, Signature

_MAX_STORIES: Final = 4096
_MAX_REPEATED: Final = 65_536
_DERIVED: Final = frozenset({"checkpoint", "evaluation"})
"""Programs for which JAX traces the function anew each time."""


class History:
    """The stories of all functions, bounded in number."""

    def __init__(self) -> None:
        self._stories: OrderedDict[Hashable, Story] = OrderedDict()
        self._definitions: OrderedDict[Hashable, Story] = OrderedDict()
        self._traces: Counter[Hashable] = Counter()
        """How often each story's function was traced."""
        self._compiled_at: dict[tuple[Hashable, int], int] = {}
        """How often it had been traced when it was last compiled for a signature."""

    def clear(self) -> None:
        """From here on nothing was compiled before."""
        self._stories.clear()
        self._definitions.clear()
        self._compiled_at.clear()

    def traced(self, function: Function) -> None:
        self._traces[function.story] += 1

    def reasons(self, function: Function, signature: Signature) -> tuple[Reason, ...]:
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
                reasons = (self._repeated(function, signature),)
            reasons = with_hints(reasons, signature, compared, function.name)
        if len(self._compiled_at) > _MAX_REPEATED:
            self._compiled_at.clear()
        self._compiled_at[function.story, hash(signature)] = self._traces[function.story]
        for stories, key in ((self._stories, story), (self._definitions, definition)):
            stories.setdefault(key, Story()).add(signature)
            stories.move_to_end(key)
            if len(stories) > _MAX_STORIES:
                stories.popitem(last=False)
        return reasons

    def _repeated(self, function: Function, signature: Signature) -> Reason:
        """Why a signature that was compiled before was compiled again.

        A program of a transformation is told by more than its arguments: as long as the
        function was not traced again, nothing was forgotten, and it is another program.
        """
        key = (function.story, hash(signature))
        again = self._compiled_at.get(key) != self._traces[function.story]
        derived = not _DERIVED.isdisjoint(signature.transform)
        if derived or (signature.transform and not again):
            text = " of ".join(signature.transform)
            return Reason("transform", None, text, f"another {text} of it")
        return Reason("evicted")
