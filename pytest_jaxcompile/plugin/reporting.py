"""What a run tells at its end: gathered from test reports, in this process and its workers."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final

import pytest

from pytest_jaxcompile.errors import CompileCountError, CountUnavailableError
from pytest_jaxcompile.jax_internals.file_origin import USER
from pytest_jaxcompile.jax_internals.probe import probe
from pytest_jaxcompile.plugin.baseline import Baseline
from pytest_jaxcompile.plugin.options import Options
from pytest_jaxcompile.plugin.outputs import Outputs
from pytest_jaxcompile.recording.attribution import Entry
from pytest_jaxcompile.recording.history import Draft
from pytest_jaxcompile.recording.recorder import recorder
from pytest_jaxcompile.records import Compilation
from pytest_jaxcompile.report.files import ReportError
from pytest_jaxcompile.report.summary import Builder, Packet, pack

_ATTRIBUTE: Final = "_jaxcompile"
"""Where a test report carries its compilations."""
_FAILURE: Final = "_jaxcompile_failure"
"""Where it carries the place and the text of a failed expectation."""


class Reporting:
    """A plugin beside the session: compilations ride on pytest's own reports."""

    def __init__(self, config: pytest.Config, options: Options, baseline: Baseline | None) -> None:
        self._config = config
        self._options = options
        self._baseline = baseline
        self._is_worker = hasattr(config, "workerinput")
        self._worker: str = getattr(config, "workerinput", {}).get("workerid", "main")
        self._root = str(config.rootpath)
        self._outputs = Outputs(config, options)
        self._builder = Builder()
        self._started = time.time()
        self._lost = False
        self._deselected = False
        self._cursor = len(recorder.entries)
        self._outside: list[tuple[str, Compilation]] = []
        self._seen: list[Entry] = []

    def begin(self) -> None:
        """A test begins."""
        self._seen = []

    def end(self) -> None:
        """A test has ended, and its packets are made."""
        self._cursor = recorder.trim(self._cursor)

    def warn(self, text: str) -> None:
        """Tell at the end of the run why nothing was recorded."""
        self._outputs.warning = text

    # -- what was collected -------------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected([item.nodeid for item in session.items])

    def pytest_deselected(self) -> None:
        self._deselected = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:  # noqa: ARG002
        self._collected(ids)

    def _collected(self, nodeids: list[str]) -> None:
        if self._baseline is not None:
            option = self._config.option
            chosen = (
                self._deselected
                or option.keyword
                or option.markexpr
                or getattr(option, "lf", False)
            )
            chosen = chosen or option.deselect or any("::" in arg for arg in self._config.args)
            self._baseline.collected(nodeids, bool(chosen))

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
        if packet is not None:
            setattr(report, _ATTRIBUTE, packet)
        error = call.excinfo
        if error is not None and error.errisinstance(CompileCountError):
            setattr(report, _FAILURE, _place(item, error))
            if not any(str(entry.path) == str(item.path) for entry in error.traceback):
                # A marker's demand failed: there is no line of the test to show.
                report.longrepr = error.getrepr(style="value")
        if call.when == "teardown":
            self._properties(report)
        return report

    def _properties(self, report: pytest.TestReport) -> None:
        """JUnit reads a test's properties from its teardown report."""
        drafts = [e.draft for e in self._seen if e.draft and not e.function.eager_op]
        report.user_properties.append(("jax_compilations", len(drafts)))
        seconds = sum(draft.seconds for draft in drafts)
        report.user_properties.append(("jax_compile_seconds", round(seconds, 6)))

    def _take(self, nodeid: str | None) -> Packet | None:
        """Compilations since the last call: those of ``nodeid`` as a packet, others kept."""
        new = recorder.entries[self._cursor :]
        self._cursor = len(recorder.entries)
        hooked = self._config.hook.pytest_jaxcompile_compilation.get_hookimpls()
        mine = []
        for entry in new:
            if entry.draft is None:
                continue
            if hooked and (record := self._record(entry.draft)) is not None:
                self._call_hook(
                    "pytest_jaxcompile_compilation", compilation=record, nodeid=entry.scope
                )
            if entry.scope == nodeid and entry.phase != "after":
                mine.append(entry.draft)
                self._seen.append(entry)
            elif self._options.summarises:
                place = (
                    entry.phase if entry.phase != "after" else f"thread that outlived {entry.scope}"
                )
                if (record := self._record(entry.draft)) is not None:
                    self._outside.append((place, record))
        if not mine or not self._options.summarises:
            return None  # nobody reads the records, so none are written
        records = [record for draft in mine if (record := self._record(draft)) is not None]
        return pack(records, self._root, self._worker)

    def _record(self, draft: Draft) -> Compilation | None:
        """Our failure to write a record is told at the end, and breaks nobody's run."""
        try:
            return draft.record
        except CountUnavailableError as error:
            self.warn(str(error))
            return None

    def _call_hook(self, name: str, **arguments: Any) -> None:
        """Call a hook of others. Its failure is told, and fails the run, but loses no report."""
        try:
            getattr(self._config.hook, name)(config=self._config, **arguments)
        except Exception as error:
            self._outputs.problem(f"the hook {name} failed: {type(error).__name__}: {error}")

    def _take_outside(self) -> Packet:
        self._take(None)
        found, self._outside = self._outside, []
        places = [place for place, _ in found]
        return pack([record for _, record in found], self._root, self._worker, places)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_worker:
            return
        place = getattr(report, _FAILURE, None)
        if place is not None:
            self._outputs.annotate(*place)
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]
            self._builder.forget(report.nodeid)
            return
        outcome = _outcome(report)
        self._builder.test(
            report.nodeid, outcome, report.duration, getattr(report, _ATTRIBUTE, None)
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        packet = getattr(node, "workeroutput", {}).get("jaxcompile")
        if packet is None or error:
            self._lost = True
        if packet is not None:
            self._builder.outside(packet["outside"])
            self._outputs.merge_environment(packet["environment"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        packet = self._take_outside()
        if self._is_worker:
            self._config.workeroutput["jaxcompile"] = {  # type: ignore[attr-defined]
                "outside": packet,
                "environment": self._outputs.environment(),
            }
            return
        self._builder.outside(packet)
        if not self._options.summarises:
            return
        summary = self._builder.summary
        summary.started = self._started
        summary.seconds = time.time() - self._started
        stopped = session.shouldstop or session.shouldfail
        summary.complete = not self._lost and exitstatus in (0, 1, 5) and not stopped
        summary.environment = self._outputs.environment()
        self._call_hook("pytest_jaxcompile_summary", summary=summary)
        if self._baseline is not None:
            try:
                self._baseline.finish(summary, session)
            except ReportError as error:
                self._outputs.problem(str(error))
        if not self._outputs.write(summary) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._is_worker:
            notes = list(self._baseline.lines()) if self._baseline is not None else []
            self._outputs.show(terminalreporter, self._builder.summary, notes)


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xpassed" if report.passed else "xfailed"
    if report.failed and report.when != "call":
        return "error"
    return report.outcome


def _end_on_users_line(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Cut the frames of JAX, and ours, below the call that compiled."""
    if not recorder.listening:  # nothing was raised inside JAX
        return
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
