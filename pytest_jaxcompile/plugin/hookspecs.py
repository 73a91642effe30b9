"""Hooks that other plugins and conftest files may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_jaxcompile.records import Compilation
    from pytest_jaxcompile.report.summary import Summary


@pytest.hookspec()
def pytest_jaxcompile_compilation(
    config: pytest.Config, compilation: Compilation, nodeid: str | None
) -> None:
    """Called once per compilation that is recorded, in the process that compiled.

    Called when the phase of the test ends, not inside the compilation. ``nodeid`` is
    ``None`` outside tests.
    """


@pytest.hookspec()
def pytest_jaxcompile_summary(config: pytest.Config, summary: Summary) -> None:
    """Change or extend the summary of the run before it is shown and written.

    ``summary.notes`` takes JSON values; they are written to the JSON report.
    """
