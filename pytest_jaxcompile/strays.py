"""Threads that outlive the test that started them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


class Strays:
    """Which running thread belongs to a test that has ended."""

    def __init__(self) -> None:
        self._tests: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()

    def of_this_thread(self) -> str | None:
        """The ended test that left the current thread running, if any."""
        return self._tests.get(threading.current_thread()) if self._tests else None

    @contextmanager
    def of_test(self, nodeid: str) -> Iterator[None]:
        """Threads started in the block and still busy at its end are strays of ``nodeid``."""
        before = set(threading.enumerate()) if threading.active_count() > 1 else None
        try:
            yield
        finally:
            if threading.active_count() > 1:
                known = before or {threading.main_thread()}
                for thread in threading.enumerate():
                    if thread not in known and not _idle_in_pool(thread):
                        self._tests[thread] = nodeid


def _idle_in_pool(thread: threading.Thread) -> bool:
    """Whether it is a ``concurrent.futures`` worker that waits: its next task is another test's."""
    frame = sys._current_frames().get(thread.ident or 0)
    running = False
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name == "concurrent.futures.thread":
            if frame.f_code.co_name == "run":
                running = True
            if frame.f_code.co_name == "_worker":
                return not running
        frame = frame.f_back
    return False
