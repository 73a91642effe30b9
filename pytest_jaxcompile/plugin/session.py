"""One pytest run: what is recorded when, and what is checked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest

from pytest_jaxcompile.counting import messages
from pytest_jaxcompile.counting.expectations import CompileLog, judge
from pytest_jaxcompile.counting.views import Recording
from pytest_jaxcompile.errors import CompileCountError, CountUnavailableError
from pytest_jaxcompile.jax_internals.import_hook import when_imported
from pytest_jaxcompile.plugin.baseline import Baseline
from pytest_jaxcompile.plugin.marker import Demand
from pytest_jaxcompile.plugin.marker import demands as find_demands
from pytest_jaxcompile.plugin.options import Options
from pytest_jaxcompile.plugin.reporting import Reporting
from pytest_jaxcompile.recording.cold_start import start_cold
from pytest_jaxcompile.recording.leftover_threads import Strays
from pytest_jaxcompile.recording.recorder import recorder

_WATCHED: Final = pytest.StashKey[bool]()
_LOG: Final = pytest.StashKey[CompileLog]()


class Session:
    """Registered as a plugin when a run asks for a report or a check, else never made."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.options = options
        self.baseline = Baseline.of(options, writing=not hasattr(config, "workerinput"))
        self._reporting = Reporting(config, options, self.baseline)
        config.pluginmanager.register(self._reporting, "jaxcompile-reporting")
        self._strays = Strays()
        self._tracing = False
        self._logs = 0
        """Tests under way that have a log: one, or none."""
        self._undo: list[Callable[[], None]] = []
        self._open = False
        self._unusable: Exception | None = None
        # A run inside a run (pytester in process) puts back what the outer one had.
        self._before = recorder.strays, recorder.scope, recorder.phase
        recorder.strays = self._strays.of_this_thread
        recorder.scope, recorder.phase = None, "startup"
        self._undo.append(when_imported("jax", self._jax_loaded))

    # -- the recorder ---------------------------------------------------------------

    def _jax_loaded(self) -> None:
        """JAX is there: listen. A failure of ours is told by whoever asks for a number."""
        from pytest_jaxcompile.jax_internals.support_check import require_supported

        try:
            require_supported()
            recorder.open(traces=False)
            self._open = True
            if self._logs:
                self._trace()
        except Exception as error:
            self._unusable = error
            self._reporting.warn(f"no JAX compilations were recorded: {error}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        for undo in self._undo:
            undo()
        if self._open:
            recorder.close(traces=False)
            self._open = False
        recorder.strays, recorder.scope, recorder.phase = self._before

    # -- which tests ask --------------------------------------------------------------

    def watch(self, item: pytest.Item) -> None:
        """This test has the fixture or a marker."""
        item.stash[_WATCHED] = True

    def log(self, item: pytest.Item) -> CompileLog:
        """The log of the test that runs, for its fixture, which starts cold at once."""
        if recorder.scope is None:
            # The first to ask of the whole run, with a test under way: see which phase it is in.
            phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("(")[2].rstrip(")")
            recorder.scope, recorder.phase = item.nodeid, phase or "call"
        log = item.stash.get(_LOG, None)
        if log is None:
            log = self._begin(item)
        self._start_cold()
        return log

    def _trace(self) -> None:
        if not self._tracing and self._open:
            recorder.open(traces=True)
            self._tracing = True

    def _begin(self, item: pytest.Item) -> CompileLog:
        nodeid = item.nodeid
        self._logs += 1
        self._trace()
        whole = Recording(recorder, lambda e: e.scope == nodeid and e.phase != "after")
        call = Recording(recorder, lambda e: e.scope == nodeid and e.phase == "call")
        log = item.stash[_LOG] = CompileLog(call, blocks=whole)
        return log

    def _start_cold(self) -> None:
        if self._unusable is not None:
            raise CountUnavailableError(
                f"compilations cannot be counted: {self._unusable}"
            ) from self._unusable
        if self._open:
            start_cold(self.options.cold)  # type: ignore[arg-type]

    # -- phases -----------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        recorder.scope, recorder.phase = item.nodeid, "setup"
        self._reporting.begin()
        self._strays.begin()
        if _WATCHED in item.stash or self.options.checks_all:
            self._begin(item)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        __tracebackhide__ = True
        log = item.stash.get(_LOG, None)
        if log is not None:
            self._start_cold()
        recorder.phase = "call"
        demands = find_demands(item)
        if log is None and demands:  # a marker that a fixture added
            log = self._begin(item)
            self._start_cold()
        if log is None:
            return (yield)
        with contextlib.ExitStack() as stack:
            for demand in demands:
                if demand.fail_fast and demand.most is not None:
                    stack.enter_context(log.watch(demand.most, of=demand.of or None))
            result = yield
        if not getattr(item, "_excinfo", None):  # where pytest keeps what a TestCase raised
            self._judge(log, item.nodeid, demands)
        return result

    def _judge(self, log: CompileLog, nodeid: str, demands: list[Demand]) -> None:
        __tracebackhide__ = True
        log.check_entered()
        limit = self.options.limit
        for demand in demands:
            if demand.limit is not None:
                limit = demand.limit
            if demand.least is not None or demand.most is not None:
                log._ready()
                judge(log.of(*demand.of) if demand.of else log, demand.least, demand.most)
        if limit is not None:
            log._ready()
            for records in log.by_function().values():
                if len(records) > limit:
                    name = f"{records[0].function} (the limit of one function in one test)"
                    raise CompileCountError(messages.message(records, [], None, limit, name))
        if self.baseline is not None and not self.options.update_baseline:
            log._ready()
            self.baseline.check(nodeid, log)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        recorder.phase = "teardown"
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """What a shared fixture compiles belongs to no single test."""
        if fixturedef.scope == "function":
            return (yield)
        threads = self._strays.running()
        before = recorder.scope, recorder.phase
        recorder.scope, recorder.phase = None, f"{fixturedef.scope} fixture {fixturedef.argname}"
        try:
            return (yield)
        finally:
            recorder.scope, recorder.phase = before
            self._strays.share(threads)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        recorder.scope = None
        recorder.phase = (
            f"import of {collector.nodeid}"
            if isinstance(collector, pytest.Module)
            else "collection"
        )
        try:
            return (yield)
        finally:
            recorder.phase = "session"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            self._end(item)
        return report

    def _end(self, item: pytest.Item) -> None:
        self._strays.end(item.nodeid)
        log = item.stash.get(_LOG, None)
        if log is not None:
            log.stop()
            del item.stash[_LOG]
            self._logs -= 1
        if self._tracing:
            recorder.close(traces=True)
            self._tracing = False
        recorder.scope, recorder.phase = None, "session"
        self._reporting.end()
