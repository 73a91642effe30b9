"""Report files: what is written, that it is whole, and what is said of a bad one."""

from __future__ import annotations

import json
import os
import random
import stat
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from schema import SCHEMA, check
from summaries import SHAPE, compiled, summary, usual

from pytest_jaxcompile.report import files
from pytest_jaxcompile.report.files import ReportError
from pytest_jaxcompile.report.summary import Summary


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    files.save_json(path, usual())
    return path


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- the form -----------------------------------------------------------------------------


def test_output_is_valid_and_every_field_is_described(written: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    check(json.loads(written.read_text()))
    undescribed = [path for path, part in _fields(SCHEMA) if not part.get("description")]
    assert undescribed == []


def _fields(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        for name, part in schema.get("properties", {}).items():
            if "$ref" not in part:
                yield f"{path}.{name}", part
        for name, part in schema.items():
            yield from _fields(part, f"{path}.{name}")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("complete"),
        lambda d: d.update(more=1),
        lambda d: d.update(schema=2),
        lambda d: d["functions"][0].update(more=1),
        lambda d: d["functions"][0]["reasons"].update(bored=1),
        lambda d: d["tests"][1]["compilations"][0].pop("thread"),
        lambda d: d["tests"][0].update(outcome="fine"),
        lambda d: d["signatures"][0]["arguments"][0].update(shape="3"),
    ],
)
def test_the_schema_can_fail(written: Path, damage: Any) -> None:
    data = json.loads(written.read_text())
    damage(data)
    with pytest.raises(jsonschema.ValidationError):
        check(data)


def test_numbers(written: Path) -> None:
    data = json.loads(written.read_text())
    assert data["totals"] == {
        "compilations": 3,
        "functions": 2,
        "again": 1,
        "disk_hits": 1,
        "eager_ops": 1,
        "compile_seconds": 0.5 + 0.25 + 0.125 + 0.0625,
    }
    step = next(f for f in data["functions"] if f["name"] == "step")
    assert (step["compilations"], step["again"], step["seconds"]) == (2, 1, 0.75)
    assert step["reasons"] == {"shape": 1}
    assert step["defined_at"] == "app/model.py:10"


def test_sorted_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    one = {"b::1": [compiled("z")], "a::1": [compiled("a", length=9), compiled("m")]}
    other = dict(reversed(one.items()))
    made = [summary(one), summary(other)]
    for number, each in enumerate(made):
        files.save_json(tmp_path / f"{number}", each)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    data = json.loads((tmp_path / "0").read_text())
    assert [f["name"] for f in data["functions"]] == ["a", "m", "z"]
    assert [t["id"] for t in data["tests"]] == ["a::1", "b::1"]
    found = data["tests"][0]["compilations"][0]
    assert data["functions"][found["function"]]["name"] == "a"
    assert data["signatures"][found["signature"]]["text"] == "(f32[9])"


def test_streamed_text_is_to_json(tmp_path: Path) -> None:
    for made in (usual(), Summary(), summary({"t": []})):
        files.save_json(tmp_path / "r", made)
        assert json.loads((tmp_path / "r").read_text()) == made.to_json()


def test_round_trip_keeps_every_byte(tmp_path: Path) -> None:
    rng = random.Random(7)
    tests = {
        f"t::{i}": [compiled(f"f{rng.randrange(5)}", seconds=rng.random()) for _ in range(9)]
        for i in rng.sample(range(50), 50)
    }
    files.save_json(tmp_path / "1", summary(tests, notes={"mine": {"b": [1, None], "a": "é"}}))
    files.save_json(tmp_path / "2", files.load_json(tmp_path / "1"))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_a_note_that_looks_like_a_compilation_stays_a_note(tmp_path: Path) -> None:
    item = usual().to_json()["tests"][1]["compilations"][1]
    made = summary({}, notes={"first": {"of": [item]}})
    files.save_json(tmp_path / "1", made)
    assert files.load_json(tmp_path / "1").notes == {"first": {"of": [item]}}


def test_fields_of_a_later_release_are_left_out(written: Path) -> None:
    data = json.loads(written.read_text())
    data["later"] = data["tests"][1]["compilations"][0]["later"] = 1
    written.write_text(json.dumps(data))
    assert files.load_json(written).compilations == 4


def test_memory_does_not_grow_with_what_is_written(tmp_path: Path) -> None:
    made = summary({f"t::{i}": [compiled("f", SHAPE)] * 500 for i in range(40)})
    tracemalloc.start()
    files.save_json(tmp_path / "r", made)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = (tmp_path / "r").stat().st_size
    assert size > 6e6
    assert peak < size / 2


# -- writing ------------------------------------------------------------------------------


def test_save_replaces_and_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text("old")
    path.chmod(0o640)
    files.save(path, "new\n")
    assert path.read_bytes() == b"new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert listing(tmp_path) == ["r.html"]


def test_a_new_file_gets_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    files.save(tmp_path / "r", "")
    assert (tmp_path / "r").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_save_writes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    files.save(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"


def test_text_that_is_no_utf_8_is_shown(tmp_path: Path) -> None:
    files.save(tmp_path / "r", "a\udcffb")
    assert (tmp_path / "r").read_text(encoding="utf-8") == "a\\udcffb"


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(28, "No space left")])
def test_a_failure_in_the_middle_loses_nothing(tmp_path: Path, error: Any) -> None:
    path = tmp_path / "r"
    path.write_text("old")

    def pieces() -> Iterator[str]:
        yield "x" * (1 << 21)
        assert len(listing(tmp_path)) == 2  # the negative control: the new file was begun
        raise error

    with pytest.raises((KeyboardInterrupt, RuntimeError, ReportError)):
        files.save_pieces(path, pieces())
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["r"]


@pytest.mark.parametrize("note", [object(), float("nan"), {1: 2, "a": 3}])
def test_notes_that_are_no_json_are_told_and_lose_nothing(written: Path, note: Any) -> None:
    before = written.read_bytes()
    with pytest.raises(ReportError, match=r"report\.json.* no JSON"):
        files.save_json(written, summary({}, notes={"mine": note}))
    assert written.read_bytes() == before
    assert listing(written.parent) == ["report.json"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_is_written_to_and_not_replaced() -> None:
    files.check_writable("/dev/null")
    files.save("/dev/null", "text")
    with pytest.raises(ReportError, match="cannot write /dev/full: No space left"):
        files.save("/dev/full", "text")
    for device in ("/dev/null", "/dev/full"):
        assert stat.S_ISCHR(os.stat(device).st_mode)


def unwritable(folder: Path) -> list[tuple[Path, str]]:
    (folder / "file").write_text("old")
    return [
        (folder, "it is a folder"),
        (folder / "no" / "r", "the folder .*no does not exist"),
        (folder / "file" / "r", "(is no folder|does not exist)"),
        (folder / ("x" * 300), "File name too long"),
        (folder / "a\0b", "null"),
    ]


def test_what_cannot_be_written_is_said_before_and_after(tmp_path: Path) -> None:
    for path, why in unwritable(tmp_path):
        with pytest.raises(ReportError, match=f"cannot write .*{why}"):
            files.check_writable(path)
        with pytest.raises(ReportError, match="cannot write "):
            files.save(path, "new")
        assert listing(tmp_path) == ["file"]
        assert (tmp_path / "file").read_text() == "old"


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ReportError, match="no permission"):
        files.check_writable(tmp_path / "r")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: os.path.isdir(path))
    with pytest.raises(ReportError, match="Permission denied"):
        files.check_writable(tmp_path / "r")


@pytest.mark.parametrize("name", ["test_a.py", "pyproject.toml", "book.ipynb"])
def test_a_source_file_is_not_overwritten(tmp_path: Path, name: str) -> None:
    """What ``--jax-compile-json tests/test_a.py`` asks for is not what anybody means."""
    path = tmp_path / name
    files.check_writable(path)  # a new file may have any name
    path.write_text("old")
    with pytest.raises(ReportError, match=f"cannot write .*{name}: it is there, and is no report"):
        files.check_writable(path)


def test_check_writable_creates_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    files.check_writable(tmp_path / "there")
    files.check_writable(tmp_path / "new")
    assert listing(tmp_path) == ["there"]
    assert (tmp_path / "there").read_text() == "old"


# -- reading ------------------------------------------------------------------------------


def test_every_truncation_is_told(written: Path) -> None:
    text = written.read_text().rstrip()
    rng = random.Random(3)
    for end in [1, 2, len(text) - 1, *rng.sample(range(len(text)), 150)]:
        written.write_text(text[:end])
        with pytest.raises(ReportError, match=r"report\.json: it is (truncated|empty|no JSON)"):
            files.load_json(written)
    written.write_text(text)
    assert files.load_json(written).compilations == 4


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"schema": 1,', "it is truncated: it ends in line 1"),
        (b'{"schema": 1, "environ', "it is truncated"),
        (b"<html></html>", "it is no JSON"),
        (b"\xff\xfe\x00\x01", "it is no JSON"),
        (b'{"a": 1} trailing', "it is no JSON"),
        (b"[" * 100_000, "it is no JSON|it is truncated"),
        (b"[]", "no report of --jax-compile-json"),
        (b"3", "no report of --jax-compile-json"),
        (b'{"traceEvents": []}', "no report of --jax-compile-json"),
        (b'{"schema": 1}', "no report of --jax-compile-json"),
        (b'{"schema": true, "functions": []}', "no report|damaged"),
        (b'{"schema": "1", "functions": []}', "no report of --jax-compile-json"),
        (b'{"schema": 2, "functions": {}}', "a newer pytest-jaxcompile wrote it .schema 2"),
        (b'{"schema": 1, "functions": []}', "it is damaged: no field 'environment'"),
    ],
)
def test_a_file_that_is_no_report(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=f"cannot read .*r: .*({why})") as caught:
        files.load_json(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("notes"),
        lambda d: d.update(seconds="long"),
        lambda d: d.update(complete=1),
        lambda d: d.update(tests=None),
        lambda d: d.update(functions=[1]),
        lambda d: d.update(functions=[]),
        lambda d: d.update(environment=7),
        lambda d: d["tests"][1].update(outcome="fine"),
        lambda d: d["tests"][1].update(id=3),
        lambda d: d["tests"][1]["compilations"][0].pop("called_from"),
        lambda d: d["tests"][1]["compilations"][0].pop("reasons"),
        lambda d: d["tests"][1]["compilations"][0].update(function=-1),
        lambda d: d["tests"][1]["compilations"][0].update(function=99),
        lambda d: d["tests"][1]["compilations"][0].update(signature=99),
        lambda d: d["tests"][1]["compilations"][0].update(signature=None),
        lambda d: d["tests"][1]["compilations"][0].update(start="noon"),
        lambda d: d["tests"][1]["compilations"][1].update(reasons=[{"kind": 5}]),
        lambda d: d["tests"][1]["compilations"].append(None),
    ],
)
def test_a_damaged_report(written: Path, damage: Any) -> None:
    data = json.loads(written.read_text())
    damage(data)
    written.write_text(json.dumps(data))
    with pytest.raises(ReportError, match=r"report\.json: it is damaged"):
        files.load_json(written)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"cannot read .*none: No such file"):
        files.load_json(tmp_path / "none")
    with pytest.raises(ReportError, match=r"cannot read .*Is a directory|Permission denied"):
        files.load_json(tmp_path)


def test_a_byte_order_mark_is_no_harm(written: Path) -> None:
    written.write_bytes(b"\xef\xbb\xbf" + written.read_bytes())
    assert files.load_json(written).compilations == 4


def test_equal_texts_and_reasons_are_kept_once(tmp_path: Path) -> None:
    files.save_json(tmp_path / "r", summary({"t": [compiled("f", SHAPE), compiled("f", SHAPE)]}))
    first, second = files.load_json(tmp_path / "r").items()
    assert first.reasons is second.reasons
    assert first.called_from is second.called_from
    assert sys.intern("main") is first.worker
