"""The time of our own per compilation: by argument leaves, and by earlier compilations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any, Final

import jax
import numpy as np
from measure import Row, main, microseconds, spread
from own import Meter, metered

from pytest_jaxcompile import CompileLog
from pytest_jaxcompile.recording.recorder import recorder

_LIMITS: Final = {10: 150e-6, 1000: 3e-3}


def measure(smallest: bool) -> Iterator[Row]:
    for leaves in (10,) if smallest else (10, 100, 1000):
        limit = None if smallest else _LIMITS.get(leaves)
        yield from _by_leaves(leaves, 3 if smallest else 15, limit)
    yield from _by_earlier((1, 2) if smallest else (100, 1000, 10_000), 2 if smallest else 20)


def new_function() -> Callable[[dict[str, Any]], Any]:
    """The cheapest function there is: what XLA has to do is next to nothing."""
    return lambda tree: tree["leaf 0"]


def arguments(leaves: int, size: int) -> dict[str, Any]:
    return {f"leaf {i}": np.ones(size, np.float32) for i in range(leaves)}


def _by_leaves(leaves: int, times: int, limit: float | None) -> Iterator[Row]:
    first, again, whole = [], [], []
    parts: dict[str, list[float]] = {}
    with metered() as (meter, log):
        for _ in range(times):
            f = jax.jit(new_function())
            for size, found in ((3, first), (4, again)):
                call = arguments(leaves, size)
                start = time.perf_counter()
                f(call)
                passed = time.perf_counter() - start
                for name, seconds in meter.seconds.items():
                    parts.setdefault(name, []).append(seconds)
                found.append(meter.take())
                whole.append(passed - found[-1])
        assert len(log) == 2 * times
        start = time.thread_time()
        assert sum(len(record.signature.leaves) for record in log) == 2 * times * leaves
        reading = (time.thread_time() - start) / len(log)
    own = median(first + again)
    share = own / median(whole)
    often = {name: median(found) for name, found in parts.items() if len(found) >= times}
    split = ", ".join(f"{name} {microseconds(seconds)}" for name, seconds in often.items())
    every = first + again
    yield Row(
        f"time of our own per compilation, {leaves:,} argument leaves",
        "-",
        f"<= {microseconds(limit)}" if limit else "grows with leaves",
        f"{microseconds(own)} ({microseconds(min(every))}..{microseconds(max(every))})",
        own <= limit if limit else None,
        f"{spread(every):.0%}",
        f"{microseconds(median(first))} first, {microseconds(median(again))} again; {split}; "
        f"its record, if somebody reads it, {microseconds(reading)} later",
    )
    yield Row(
        f"same, {leaves:,} argument leaves",
        "that compilation",
        "<= 1%" if leaves == 10 else "grows with leaves",
        f"{share:.2%}",
        share <= 0.01 if leaves == 10 and limit else None,
        f"{spread(whole):.0%}",
        f"XLA CPU, cheapest function, {microseconds(median(whole))} each",
    )


def _by_earlier(sizes: tuple[int, ...], times: int) -> Iterator[Row]:
    """All in one recording, one function, a new shape of one leaf each time.

    The ends are compiled and measured, their records read at once. What is between is told to
    the history as if it had been compiled: ten thousand true compilations would take many minutes
    to show the same.
    """
    f = jax.jit(new_function())
    tree = arguments(9, 3)
    done = 0

    def own(meter: Meter, log: CompileLog) -> float:
        nonlocal done
        done += 1
        call = {**tree, "leaf 9": np.ones(done, np.float32)}
        meter.take()
        f(call)
        heard = meter.take()
        start = time.thread_time()
        assert log[-1].reasons or done == 1
        return heard + time.thread_time() - start

    with metered() as (meter, log):
        early = [own(meter, log) for _ in range(times)]
        last, draft = log[-1].signature, recorder.entries[-1].draft
        assert draft is not None
        for earlier in sizes:
            while done < earlier:
                done += 1
                leaf = last.leaves[-1]._replace(shape=(done,))
                signature = replace(last, leaves=(*last.leaves[:-1], leaf))
                recorder._history.reasons(draft.function, signature, draft.traces)
            late = [own(meter, log) for _ in range(times)]
            ratio = median(late) / median(early)
            is_target = earlier == 10_000
            yield Row(
                f"same, and its reasons, after {earlier:,} earlier compilations of the function",
                f"the first {times}",
                "<= 1.5" if is_target else "grows with compilations",
                f"{ratio:.2f}",
                ratio <= 1.5 if is_target else None,
                f"{spread(early):.0%}",
                f"10 leaves, {microseconds(median(early))} -> {microseconds(median(late))}",
            )


if __name__ == "__main__":
    main(measure)
