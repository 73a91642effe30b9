"""Counting in a script or notebook, without pytest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_jaxcompile.counting.expectations import CompileLog
from pytest_jaxcompile.counting.views import Recording
from pytest_jaxcompile.jax_internals.support_check import require_supported
from pytest_jaxcompile.recording.cold_start import start_cold
from pytest_jaxcompile.recording.recorder import recorder


@contextmanager
def count_compiles(*, cold: bool = False) -> Iterator[CompileLog]:
    """Count what JAX compiles in the block, on all threads.

    Gives the same object as the fixture ``jax_compiles``; it can be read inside the
    block and after it. With ``cold=True`` what user code had compiled is forgotten first.
    Loads JAX. Raises :class:`UnsupportedJaxError` if the installed JAX cannot be read, and
    :class:`CompileCountError` at the end of the block for an expectation that was made in it
    but never entered.
    """
    require_supported()
    recorder.open(traces=True)
    try:
        if cold:
            start_cold()
        recording = Recording(recorder)
        log = CompileLog(recording)
        try:
            yield log
            log.check_entered()
        finally:
            recording.stop()
    finally:
        recorder.close(traces=True)
