"""Threads that outlive the test that started them."""

from __future__ import annotations

import sys
import threading
import weakref
from types import FrameType
from typing import Any


class Strays:
    """Which running thread still does the work of a test that has ended."""

    def __init__(self) -> None:
        self._tests: weakref.WeakKeyDictionary[threading.Thread, tuple[str, Any]]
        self._tests = weakref.WeakKeyDictionary()
        self._shared: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._before: set[threading.Thread] | None = None

    def of_this_thread(self) -> str | None:
        """The ended test whose work the current thread does, if any."""
        if not self._tests:
            return None
        thread = threading.current_thread()
        found = self._tests.get(thread)
        if found is None:
            return None
        nodeid, task = found
        if task is not None and task() is not _task(sys._getframe()):
            del self._tests[thread]  # a pool's thread with another task by now
            return None
        return nodeid

    def running(self) -> set[threading.Thread]:
        """The threads alive, the main one apart."""
        if threading.active_count() == 1:
            return set()
        return set(threading.enumerate()) - {threading.main_thread()}

    def share(self, before: set[threading.Thread]) -> None:
        """Threads started since belong to a shared fixture, to whichever test uses it."""
        self._shared |= self.running() - before

    def begin(self) -> None:
        """A test begins."""
        self._before = self.running()

    def end(self, nodeid: str) -> None:
        """A test has ended: threads it started and left running are strays, with what they do.

        So are threads of a pool with a task of the test's. A thread that waits for its next task
        does nobody's work.
        """
        before, self._before = self._before or set(), None
        running = self.running()
        frames = sys._current_frames() if running else {}
        for thread in running:
            frame = frames.get(thread.ident or 0)
            task = _task(frame)
            if task is not None:
                self._tests[thread] = (nodeid, weakref.ref(task))
            elif _waits_for_task(frame):
                self._tests.pop(thread, None)
            elif thread not in before and thread not in self._shared:
                self._tests[thread] = (nodeid, None)


def _task(frame: FrameType | None) -> Any:
    """The task that a thread of ``concurrent.futures`` runs."""
    while frame is not None:
        if frame.f_code.co_name == "run" and _module(frame) == "concurrent.futures.thread":
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None


def _waits_for_task(frame: FrameType | None) -> bool:
    """Whether a thread waits in a queue: the standard library's, or that of one of its pools."""
    while frame is not None and _module(frame) == "threading":
        frame = frame.f_back
    if frame is None:
        return False
    return _module(frame) in ("queue", "concurrent.futures.thread", "multiprocessing.pool")


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
