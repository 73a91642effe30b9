"""One pytest run: what is recorded when, what is checked, what rides on the reports."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest

from pytest_jaxcompile import failure
from pytest_jaxcompile.baseline import Baseline
from pytest_jaxcompile.cold import start_cold
from pytest_jaxcompile.errors import CompileCountError, CountUnavailableError
from pytest_jaxcompile.imports import when_imported
from pytest_jaxcompile.log import CompileLog, Recording, judge
from pytest_jaxcompile.marker import Demand
from pytest_jaxcompile.marker import demands as find_demands
from pytest_jaxcompile.options import Options
from pytest_jaxcompile.outputs import Outputs
from pytest_jaxcompile.probe import probe
from pytest_jaxcompile.recorder import Entry, recorder
from pytest_jaxcompile.report.files import ReportError
from pytest_jaxcompile.report.summary import Builder, Packet, pack
from pytest_jaxcompile.stack import USER
from pytest_jaxcompile.strays import Strays

_WATCHED: Final = pytest.StashKey[bool]()
_LOG: Final = pytest.StashKey[CompileLog]()
_ATTRIBUTE: Final = "_jaxcompile"
"""Where a test report carries its compilations."""
_FAILURE: Final = "_jaxcompile_failure"
"""Where it carries the place and the text of a failed expectation."""


class Session:
    """Registered as a plugin when a run asks for a report or a check, else never made."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.is_worker = hasattr(config, "workerinput")
        self.worker: str = getattr(config, "workerinput", {}).get("workerid", "main")
        self.builder = Builder()
        self.started = time.time()
        self.lost = False
        self.outputs = Outputs(config, options)
        self.baseline = Baseline.of(options, writing=not self.is_worker)
        self._strays = Strays()
        self._cursor = 0
        self._tracing = False
        self._logs = 0
        """Tests under way that have a log: one, or none."""
        self._undo: list[Callable[[], None]] = []
        self._open = False
        self._deselected = False
        self._unusable: Exception | None = None
        self._outside: list[tuple[str, Entry]] = []
        self._seen: list[Entry] = []
        # A run inside a run (pytester in process) puts back what the outer one had.
        self._before = recorder.strays, recorder.scope, recorder.phase
        recorder.strays = self._strays.of_this_thread
        recorder.scope, recorder.phase = None, "startup"
        self._undo.append(when_imported("jax", self._jax_loaded))

    # -- the recorder ---------------------------------------------------------------

    def _jax_loaded(self) -> None:
        """JAX is there: listen. A failure of ours is told by whoever asks for a number."""
        from pytest_jaxcompile.selfcheck import require_supported

        try:
            require_supported()
            recorder.open(traces=False)
            self._open = True
            if self._logs:
                self._trace()
        except Exception as error:
            self._unusable = error

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
        log = item.stash.get(_LOG, None) or self._begin(item)
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

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected([item.nodeid for item in session.items])

    def pytest_deselected(self) -> None:
        self._deselected = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:  # noqa: ARG002
        self._collected(ids)

    def _collected(self, nodeids: list[str]) -> None:
        if self.baseline is not None:
            option = self.config.option
            chosen = (
                self._deselected
                or option.keyword
                or option.markexpr
                or getattr(option, "lf", False)
            )
            chosen = chosen or option.deselect or any("::" in arg for arg in self.config.args)
            self.baseline.collected(nodeids, bool(chosen))

    # -- phases -----------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        recorder.scope, recorder.phase = item.nodeid, "setup"
        self._seen = []
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
                    raise CompileCountError(failure.message(records, [], None, limit, name))
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

    # -- reports ------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        for raised in (call.excinfo, *(getattr(item, "_excinfo", None) or ())):
            if raised is not None and raised.errisinstance(CompileCountError):
                _end_on_users_line(raised)
        report = yield
        packet = self._take(item.nodeid)
        if packet is not None and self.options.summarises:
            setattr(report, _ATTRIBUTE, packet)
        error = call.excinfo
        if error is not None and error.errisinstance(CompileCountError):
            setattr(report, _FAILURE, _place(item, error))
            if not any(str(entry.path) == str(item.path) for entry in error.traceback):
                # A marker's demand failed: there is no line of the test to show.
                report.longrepr = error.getrepr(style="value")
        if call.when == "teardown":
            self._strays.end(item.nodeid)
            self._properties(item, report)
            self._end(item)
        return report

    def _properties(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """JUnit reads a test's properties from its teardown report."""
        records = [e.compilation for e in self._seen if e.compilation and not e.function.eager_op]
        log = item.stash.get(_LOG, None)
        if self.options.summarises or log is not None:
            report.user_properties.append(("jax_compilations", len(records)))
            seconds = sum(record.seconds for record in records)
            report.user_properties.append(("jax_compile_seconds", round(seconds, 6)))

    def _end(self, item: pytest.Item) -> None:
        log = item.stash.get(_LOG, None)
        if log is not None:
            log.stop()
            del item.stash[_LOG]
            self._logs -= 1
        if self._tracing:
            recorder.close(traces=True)
            self._tracing = False
        recorder.scope, recorder.phase = None, "session"
        self._cursor = recorder.trim(self._cursor)

    def _take(self, nodeid: str | None) -> Packet | None:
        """Compilations since the last call: those of ``nodeid`` as a packet, others kept."""
        new = recorder.entries[self._cursor :]
        self._cursor = len(recorder.entries)
        mine = []
        for entry in new:
            if entry.compilation is None:
                continue
            self._call_hook(
                "pytest_jaxcompile_compilation",
                compilation=entry.compilation,
                nodeid=entry.scope,
            )
            if entry.scope == nodeid and entry.phase != "after":
                mine.append(entry.compilation)
                self._seen.append(entry)
            else:
                place = (
                    entry.phase if entry.phase != "after" else f"thread that outlived {entry.scope}"
                )
                self._outside.append((place, entry))
        return pack(mine, self._root, self.worker) if mine else None

    def _call_hook(self, name: str, **arguments: Any) -> None:
        """Call a hook of others. Its failure is told, and fails the run, but loses no report."""
        try:
            getattr(self.config.hook, name)(config=self.config, **arguments)
        except Exception as error:
            self.outputs.problem(f"the hook {name} failed: {type(error).__name__}: {error}")

    @property
    def _root(self) -> str:
        return str(self.config.rootpath)

    def _take_outside(self) -> Packet:
        self._take(None)
        places = [place for place, _ in self._outside]
        records = [entry.compilation for _, entry in self._outside if entry.compilation is not None]
        self._outside = []
        return pack(records, self._root, self.worker, places)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_worker:
            return
        place = getattr(report, _FAILURE, None)
        if place is not None:
            self.outputs.annotate(*place)
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]
            self.builder.forget(report.nodeid)
            return
        outcome = _outcome(report)
        self.builder.test(
            report.nodeid, outcome, report.duration, getattr(report, _ATTRIBUTE, None)
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        packet = getattr(node, "workeroutput", {}).get("jaxcompile")
        if packet is None or error:
            self.lost = True
        if packet is not None:
            self.builder.outside(packet["outside"])
            self.outputs.merge_environment(packet["environment"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        packet = self._take_outside()
        if self.is_worker:
            self.config.workeroutput["jaxcompile"] = {  # type: ignore[attr-defined]
                "outside": packet,
                "environment": self.outputs.environment(),
            }
            return
        self.builder.outside(packet)
        if not self.options.summarises:
            return
        summary = self.builder.summary
        summary.started = self.started
        summary.seconds = time.time() - self.started
        stopped = session.shouldstop or session.shouldfail
        summary.complete = not self.lost and exitstatus in (0, 1, 5) and not stopped
        summary.environment = self.outputs.environment()
        self._call_hook("pytest_jaxcompile_summary", summary=summary)
        if self.baseline is not None:
            try:
                self.baseline.finish(summary, session)
            except ReportError as error:
                self.outputs.problem(str(error))
        if not self.outputs.write(summary) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._unusable is not None:
            warnings.warn(
                pytest.PytestWarning(f"no JAX compilations were recorded: {self._unusable}"),
                stacklevel=1,
            )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.is_worker:
            notes = list(self.baseline.lines()) if self.baseline is not None else []
            self.outputs.show(terminalreporter, self.builder.summary, notes)


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xpassed" if report.passed else "xfailed"
    if report.failed and report.when != "call":
        return "error"
    return report.outcome


def _end_on_users_line(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Cut the frames of JAX, and ours, below the call that compiled."""
    last = None
    step = excinfo.value.__traceback__
    while step is not None:
        if probe().zone(step.tb_frame.f_code.co_filename) == USER:
            last = step
        step = step.tb_next
    if last is not None:
        last.tb_next = None
    notes = getattr(excinfo.value, "__notes__", [])
    notes[:] = [note for note in notes if "JAX has removed its internal frames" not in note]


def _place(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> tuple[str, int, str]:
    """The user's line that failed, relative to the root: in the test, or the test itself."""
    path, line, _ = item.location
    found = (path, (line or 0) + 1)
    for entry in excinfo.traceback:
        if str(entry.path) == str(item.path):
            found = (path, entry.lineno + 1)
    return (*found, str(excinfo.value))
