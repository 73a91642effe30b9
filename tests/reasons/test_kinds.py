"""One table of kinds, which records, the JSON schema and the docs agree with."""

from __future__ import annotations

import pathlib
import re

import pytest
from schema import SCHEMA

from pytest_jaxcompile.reasons.kinds import KINDS
from pytest_jaxcompile.records import KINDS as RANKED

PAGES = pathlib.Path(__file__).parents[2] / "docs" / "reasons"
INDEX = (PAGES / "index.md").read_text()


def test_the_order_of_the_table_is_the_rank() -> None:
    assert tuple(KINDS) == RANKED


def test_the_schema_lists_all_kinds() -> None:
    (listed,) = (d["enum"] for d in SCHEMA["$defs"].values() if "shape" in d.get("enum", ()))
    assert listed == sorted(KINDS)


def test_every_kind_has_a_page_and_no_page_is_of_none() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} - {"index"} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_names_its_kind_and_says_what_to_do(kind: str) -> None:
    lines = (PAGES / f"{kind}.md").read_text().splitlines()
    assert lines[0] == f"# {kind}"
    assert "## Remedy" in lines


def test_the_index_has_the_table() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (.*?) \|", INDEX, re.MULTILINE)
    assert rows == [(kind, kind, entry.when) for kind, entry in KINDS.items()]
