"""A real suite, chex's own, with every report on."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from measure import OFF, PYTEST, Row, child, main, microseconds, pairs

_SUITE: Final = (
    "--pyargs",
    "chex._src.asserts_chexify_test",
    "chex._src.fake_test",
    "chex._src.variants_test",
)
_SMALLEST: Final = ("--pyargs", "chex._src.warnings_test")


def measure(smallest: bool) -> Iterator[Row]:
    suite = _SMALLEST if smallest else _SUITE
    reports = ["--jax-compile-report", "--jax-compile-json=report.json"]
    if importlib.util.find_spec("jinja2") is not None:
        reports.append("--jax-compile-html=report.html")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = pairs(
            lambda: child([*PYTEST, *OFF, *suite], folder).seconds,
            lambda: child([*PYTEST, *reports, *suite], folder).seconds,
            1,
        )
    yield Row(
        f"chex's own suite ({', '.join(suite[1:])}) with {len(reports)} reports",
        "`-p no:jaxcompile`",
        "<= 1.01",
        str(found),
        None if smallest else found.median <= 1.01,
        f"{found.noise:.1%}",
        f"CPU {microseconds(found.a)} -> {microseconds(found.b)}",
    )


if __name__ == "__main__":
    main(measure)
