"""Reports as files: written whole or not at all, read with an error that says what is wrong."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from os import PathLike
from typing import Any, Final

from pytest_jaxcompile.report import json_form
from pytest_jaxcompile.report.summary import SCHEMA, Summary

_PART: Final = ".jax-compile-"
"""Start of the name of a file that is being written."""
_SOURCES: Final = (".py", ".pyi", ".ipynb", ".toml", ".cfg", ".ini")
"""What a path that was forgotten after an option turns into its value: ``--…-json tests/a.py``."""


class ReportError(ValueError):
    """A report file that cannot be written or read; the message is one line and names it."""


# -- writing ------------------------------------------------------------------------


def save(path: str | PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all. Raises :class:`ReportError`.

    A file that is there keeps its permissions, a new one gets the usual ones. The folder
    must exist.
    """
    save_pieces(path, (text,))


def save_json(path: str | PathLike[str], summary: Summary) -> None:
    """Write the JSON form, one compilation per line; memory does not grow with their number.

    Sorted: equal summaries give equal bytes. Raises :class:`ReportError`.
    """
    try:
        data = json_form.stream(summary)
    except (TypeError, ValueError) as error:
        raise ReportError(
            f"cannot write {os.fspath(path)}: the environment or notes that a hook set are no "
            f"JSON: {error}"
        ) from error
    save_pieces(path, chain(_lines(data), ("\n",)))


def save_pieces(path: str | PathLike[str], pieces: Iterable[str]) -> None:
    """:func:`save` for a text in pieces; an error they raise leaves everything as it was."""
    name = os.fspath(path)
    try:
        target = os.path.realpath(name)
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            # A pipe or /dev/stdout: replacing it would put a file in its place.
            _write(os.open(target, os.O_WRONLY), pieces)
            return
        part = os.path.join(os.path.dirname(target), f"{_PART}{secrets.token_hex(8)}")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            _write(handle, pieces)
            if mode is not None:
                os.chmod(part, stat.S_IMODE(mode))
            os.replace(part, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
    except (OSError, ValueError) as error:
        if isinstance(error, ReportError):
            raise
        raise ReportError(f"cannot write {name}: {_why(error)}") from error


def check_writable(path: str | PathLike[str]) -> None:
    """Raise :class:`ReportError` if :func:`save` is sure to fail. Creates and changes nothing."""
    name = os.fspath(path)
    try:
        target = os.path.realpath(name)
        mode = _mode(target)
        folder = os.path.dirname(target)
        problem = None
        if mode is not None and stat.S_ISDIR(mode):
            problem = "it is a folder"
        elif mode is not None and not os.access(target, os.W_OK):
            problem = "Permission denied"
        elif mode is not None and target.endswith(_SOURCES):
            problem = "it is there, and is no report but a source file"
        elif not os.path.exists(folder):
            problem = f"the folder {folder} does not exist"
        elif not os.path.isdir(folder):
            problem = f"{folder} is no folder"
        elif (mode is None or stat.S_ISREG(mode)) and not os.access(folder, os.W_OK | os.X_OK):
            problem = f"no permission to write in the folder {folder}"
    except (OSError, ValueError) as error:
        problem = _why(error)
    if problem is not None:
        raise ReportError(f"cannot write {name}: {problem}")


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(handle: int, pieces: Iterable[str]) -> None:
    # A path may hold bytes that are no UTF-8; a report shows them rather than fails on them.
    with open(
        handle, "w", encoding="utf-8", errors="backslashreplace", newline="", buffering=1 << 20
    ) as file:
        file.writelines(pieces)


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


_dumps = json.JSONEncoder(separators=(", ", ": ")).encode


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """JSON text of ``value`` in pieces: of each :class:`Parts` in it one element per line."""
    inner = indent + " "
    if isinstance(value, dict) and any(isinstance(p, json_form.Parts) for p in value.values()):
        opening, closing = "{", "}"
        parts: Iterable[tuple[str, Any]] = ((f"{_dumps(k)}: ", part) for k, part in value.items())
    elif isinstance(value, json_form.Parts):
        opening, closing = "[", "]"
        parts = (("", part) for part in value)
    else:
        yield value if isinstance(value, json_form.Encoded) else _dumps(value)
        return
    before = opening
    for name, part in parts:
        yield f"{before}\n{inner}{name}"
        yield from _lines(part, inner)
        before = ","
    yield f"\n{indent}{closing}" if before == "," else opening + closing


# -- reading ------------------------------------------------------------------------


def load_json(path: str | PathLike[str]) -> Summary:
    """Read a JSON report. Raises :class:`ReportError` for a file that is none."""
    name = os.fspath(path)
    reader = json_form.ItemReader()
    try:
        with open(name, encoding="utf-8-sig") as file:
            text = file.read()
        data = json.loads(text, object_hook=reader.hook)
    except OSError as error:
        raise ReportError(f"cannot read {name}: {_why(error)}") from error
    except json.JSONDecodeError as error:
        raise ReportError(f"cannot read {name}: {_broken(error)}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"cannot read {name}: it is no JSON ({error})") from error
    del text
    _check_ours(name, data)
    try:
        return json_form.read(data)
    except KeyError as error:
        raise ReportError(f"cannot read {name}: it is damaged: no field {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ReportError(f"cannot read {name}: it is damaged: {error}") from error


def _broken(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].strip()
    if not error.doc.strip():
        return "it is empty"
    if not rest or error.msg.startswith(("Unterminated string", "Invalid \\")):
        return f"it is truncated: it ends in line {error.doc.count(chr(10)) + 1}, too early"
    return f"it is no JSON: {error}"


def _check_ours(name: str, data: Any) -> None:
    schema = data.get("schema") if isinstance(data, dict) else None
    # Whatever a later schema changes, one of these is likely to stay.
    ours = isinstance(data, dict) and {"environment", "functions"} & data.keys()
    if not ours or not isinstance(schema, int) or schema < 1:
        raise ReportError(f"cannot read {name}: it is JSON, but no report of --jax-compile-json")
    if schema > SCHEMA:
        raise ReportError(
            f"cannot read {name}: a newer pytest-jaxcompile wrote it (schema {schema}, this one "
            f"reads up to {SCHEMA}); update pytest-jaxcompile"
        )
