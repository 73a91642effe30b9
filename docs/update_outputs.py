"""Runs what the documentation shows, and writes what it prints below it.

    python docs/update_outputs.py [--check] [PAGE ...]

``tests/test_docs.py`` runs the same and compares. How a page is read:

* A ``python`` block that begins with ``# NAME.py`` is a file of that name. A test file
  (``test_*.py``) is run with pytest: it fails with the ``text`` block right below it, and
  passes if there is none. Another file is run, and prints that block.
* A ``python`` block without a name is run too; ``<!-- setup ... -->`` above it holds the lines
  that it takes for granted.
* A ``toml``, ``ini`` or ``yaml`` block with a name in its first line is a file of that name.
* The commands of a ``console`` block (``$ ...``) are run if a ``text`` block with the output of
  the last one follows. If pytest is among them, they run the test file right above them.
* ``<!-- copy PATH -->`` copies a folder of this repository to where the page's programs run.
* ``<!-- begin NAME -->`` to ``<!-- end NAME -->`` is generated: see ``GENERATED``.

Of a failed test the lines from ``def`` to the last one of the message are shown. Times, and
what depends on the machine, are not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"

# What a block of the README takes for granted; it has no room for comments.
README_SETUP: Final = """\
import jax, pytest
import jax.numpy as jnp
train = jax.jit(lambda: 1)
"""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


# -- reading a page -------------------------------------------------------------------


@dataclass
class Block:
    """A fenced block: ``lines[start:end]`` of the page is its content."""

    lang: str
    start: int
    end: int
    text: str
    setup: str = ""
    output: Block | None = None
    """The ``text`` block right below it."""

    @property
    def name(self) -> str | None:
        """The file that its first line names."""
        found = re.match(r"[#;] ([\w./-]+\.(?:py|toml|ini|cfg|yml|yaml))\n", self.text)
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        """What a ``console`` block runs; a line that ends with a backslash goes on."""
        text = self.text.replace("\\\n", " ")
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


_FENCE: Final = re.compile(r"^```(\S*)(?: .*)?$")
_SETUP: Final = re.compile(r"<!-- setup\n(.*?)-->", re.DOTALL)


def blocks(text: str) -> list[Block]:
    lines = text.split("\n")
    found: list[Block] = []
    start: int | None = None
    lang, closed = "", 0
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if start is None:
            lang, start = fence[1], number + 1
            continue
        block = Block(lang, start, number, "".join(f"{row}\n" for row in lines[start:number]))
        between = "\n".join(lines[closed : start - 1])
        setup = _SETUP.findall(between)
        block.setup = setup[-1] if setup else ""
        if lang == "text" and found and not between.strip():
            found[-1].output = block
        found.append(block)
        start, closed = None, number + 1
    if start is not None:
        raise ValueError(f"the block that begins in line {start} has no end")
    return found


# -- running a page -------------------------------------------------------------------


@dataclass
class Page:
    """Runs the blocks of one page in a folder of its own."""

    path: Path
    folder: Path
    shown: dict[int, str] = field(default_factory=dict)
    """The real output for the ``text`` block that begins in a line."""
    problems: list[str] = field(default_factory=list)
    _pending: dict[str, Block] = field(default_factory=dict)

    def run(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        for copied in re.findall(r"<!-- copy (\S+) -->", text):
            ignore = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis")
            shutil.copytree(ROOT / copied, self.folder / copied, ignore=ignore)
        before = None
        for block in blocks(text):
            if block.lang == "python":
                self._python(block)
            elif block.lang in ("toml", "ini", "yaml") and block.name:
                self._write(block.name, block.text)
            elif block.lang == "console" and block.output:
                tests = any("-m pytest " in command for command in block.commands)
                if tests and before and before.name in self._pending and not before.output:
                    del self._pending[before.name]  # it is run here, and its failure is shown
                self._flush()
                script = "\n".join(block.commands[:-1])
                if script:
                    self._execute(script, shell=True)
                done = self._execute(block.commands[-1], shell=True)
                self._show(block, done.stdout + done.stderr)
            before = block
        self._flush()

    def _python(self, block: Block) -> None:
        name = block.name
        if name is None:
            kind = "test_block" if "def test_" in block.text else "block"
            name = f"{kind}_{block.start + 1}.py"
        source = block.text
        if block.setup or (self.path.name == "README.md" and block.name is None):
            source = (block.setup or self._readme_setup()) + source
        if name in self._pending:
            self._flush()
        self._write(name, source)
        if name == "conftest.py":
            return
        if Path(name).name.startswith("test_"):
            self._pending[name] = block
            return
        done = self._execute([sys.executable, name])
        if done.returncode:
            self._problem(block, f"{name} failed:\n{done.stdout}{done.stderr}")
        elif block.output:
            self._show(block, done.stdout)

    def _readme_setup(self) -> str:
        return README_SETUP + "summed = jax.jit(lambda x: x.sum())\nsummed.__name__ = 'summed'\n"

    def _flush(self) -> None:
        """Run the test files that wait, all at once."""
        pending, self._pending = self._pending, {}
        if not pending:
            return
        report = self.folder / ".junit.xml"
        done = self._execute(
            [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *pending]
        )
        if not report.exists():
            self.problems.append(f"{self.path.name}: pytest failed:\n{done.stdout}{done.stderr}")
            return
        outcomes = _outcomes(report)
        report.unlink()
        for name, block in pending.items():
            module = Path(name).stem
            mine = {test: text for (file, test), text in outcomes.items() if module in file}
            failed = {test: text for test, text in mine.items() if text is not None}
            if not mine:
                self._problem(block, f"{name} runs no test:\n{done.stdout}")
            elif block.output is None:
                for test, text in failed.items():
                    self._problem(block, f"{name}: {test} failed:\n{text}")
            elif len(failed) != 1:
                self._problem(block, f"{name}: {len(failed)} tests failed, not the one shown")
            else:
                self._show(block, message(next(filter(None, failed.values()))))

    def _execute(self, command: Any, shell: bool = False) -> subprocess.CompletedProcess[str]:
        hidden = ("JAX_", "XLA_", "PYTEST_", "GITHUB_", "COVERAGE_", "COV_")
        # In CI, pytest writes its summary lines in full.
        other = ("CI", "BUILD_NUMBER", "FORCE_COLOR", "NO_COLOR", "PY_COLORS")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(hidden) and k not in other}
        environment = {
            **kept,
            "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
            "JAX_PLATFORMS": "cpu",
            # Plugins that happen to be installed would show in the output.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_jaxcompile.plugin",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PORT": str(_free_port()),
        }
        return subprocess.run(
            command,
            shell=shell,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _show(self, block: Block, text: str) -> None:
        assert block.output is not None
        text = text.replace(str(self.folder) + os.sep, "").replace(str(self.folder), ".")
        text = re.sub(r"/\S*/site-packages/", ".../site-packages/", text)
        lines = [line.rstrip() for line in text.strip("\n").splitlines()]
        self.shown[block.output.start] = "".join(f"{line}\n" for line in lines)

    def _problem(self, block: Block, text: str) -> None:
        self.problems.append(f"{self.path.name}:{block.start + 1}: {text}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


def _outcomes(report: Path) -> dict[tuple[tuple[str, ...], str], str | None]:
    """For each test of a JUnit file, with the parts of its module's name, how it failed."""
    found: dict[tuple[tuple[str, ...], str], str | None] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = next((e for e in case if e.tag in ("failure", "error")), None)
        where = tuple((case.get("classname") or case.get("name", "")).split("."))
        found[where, case.get("name", "")] = None if bad is None else bad.text or ""
    return found


def message(text: str) -> str:
    """Of a failure as pytest shows it, the test's own lines and what went wrong."""
    lines = text.splitlines()
    first = next(
        (i for i, line in enumerate(lines) if re.match(r"[> ]   ( *)(def|with) ", line)), 0
    )
    while first and lines[first - 1].startswith("    @"):
        first -= 1
    last = max((i for i, line in enumerate(lines) if line.startswith("E ")), default=len(lines) - 1)
    marks = re.compile(r"^ *[\^~]+$")
    return "\n".join(line for line in lines[first : last + 1] if not marks.match(line))


# -- what is generated ----------------------------------------------------------------


def _flags() -> str:
    """Flags and ini settings, from what pytest is told of them."""
    flags, inis = options()
    rows = ["| flag | ini | what it does |", "|---|---|---|"]
    for flag, (metavar, text) in flags.items():
        value = f"={metavar}" if metavar else ""
        twin = flag.removeprefix("--").replace("-", "_")
        rows.append(f"| `{flag}{value}` | `{twin}` | {text} |")
    for name, text in inis.items():
        if "--" + name.replace("_", "-") not in flags:
            rows.append(f"| | `{name}` | {text} |")
    return "\n".join(rows)


def options() -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Flags with metavar and help, ini settings with help."""
    from pytest_jaxcompile.plugin.options import add_options

    flags: dict[str, tuple[str, str]] = {}
    inis: dict[str, str] = {}

    class Parser:
        def getgroup(self, *_: str) -> Parser:
            return self

        def addoption(self, flag: str, **given: Any) -> None:
            flags[flag] = (given.get("metavar", ""), given["help"])

        def addini(self, name: str, help: str, **_: Any) -> None:  # noqa: A002
            inis[name] = help

    add_options(Parser())  # type: ignore[arg-type]
    return flags, inis


def _schema() -> str:
    """The JSON report, field by field."""
    path = ROOT / "pytest_jaxcompile" / "report" / "schema.json"
    if not path.exists():
        return "The schema is in `pytest_jaxcompile/report/schema.json`."
    schema = json.loads(path.read_text(encoding="utf-8"))
    parts = [_fields("The report", schema)]
    for name, part in (schema.get("$defs") or {}).items():
        if part.get("properties"):
            parts.append(_fields(name, part))
    return "\n\n".join(parts)


def _fields(title: str, schema: dict[str, Any]) -> str:
    rows = [f"### {title.replace('_', ' ')}", ""]
    if schema.get("description"):
        rows += [schema["description"], ""]
    rows += ["| field | type | meaning |", "|---|---|---|"]
    rows += _field_rows(schema, "")
    return "\n".join(rows)


def _field_rows(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        text = " ".join(str(part.get("description", "")).split()).replace("|", "\\|")
        yield f"| `{prefix}{name}` | {_type(part)} | {text} |"
        yield from _field_rows(part, f"{prefix}{name}.")
        yield from _field_rows(part.get("items", {}), f"{prefix}{name}[].")


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        return part["$ref"].rpartition("/")[2].replace("_", " ")
    if "const" in part:
        return f"`{json.dumps(part['const'])}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    several = part.get("anyOf") or part.get("oneOf")
    if several:
        return " or ".join(map(_type, several))
    kind = part.get("type", "any")
    kinds = [kind] if isinstance(kind, str) else list(kind)
    if "items" in part:
        kinds[kinds.index("array")] = f"array of {_type(part['items'])}"
    return " or ".join(kinds)


def _benchmarks() -> str:
    path = DOCS / "assets" / "benchmarks.md"
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    return "_Not measured yet: run `python benchmarks/run.py`._"


def _modules() -> str:
    """The modules with the first line of their docstrings and what of the package they import."""
    package = ROOT / "pytest_jaxcompile"
    rows = ["| module | what it does | imports of the package |", "|---|---|---|"]
    for path in sorted(package.rglob("*.py"), key=lambda p: (len(p.relative_to(package).parts), p)):
        name = path.relative_to(package).with_suffix("").as_posix()
        name = name.removesuffix("/__init__")
        text = path.read_text(encoding="utf-8")
        found = re.search(r'^"""(.*?)(?:"""|\n\n)', text, re.DOTALL)
        what = " ".join(found[1].split()) if found else ""
        names = sorted(set(_imports(text)) - {name})
        rows.append(f"| `{name}` | {what} | {', '.join(f'`{n}`' for n in names) or '-'} |")
    return "\n".join(rows)


def _imports(text: str) -> Iterator[str]:
    for module, names in re.findall(
        r"^ *from pytest_jaxcompile(\.[\w.]+)? import ([\w, ]+|\([^)]*\))", text, re.MULTILINE
    ):
        place = module[1:].replace(".", "/")
        if place and not (ROOT / "pytest_jaxcompile" / place).is_dir():
            yield place
            continue
        for name in re.findall(r"(\w+)(?: as \w+)?", names):
            if (ROOT / "pytest_jaxcompile" / place / f"{name}.py").exists():
                yield f"{place}/{name}" if place else name


def _marker() -> str:
    from pytest_jaxcompile.plugin.options import MARKER_HELP

    call, _, text = MARKER_HELP.partition(": ")
    return f"    @pytest.mark.{call}\n\n{text[0].upper()}{text[1:]}"


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "marker": _marker,
    "flags": _flags,
    "schema": _schema,
    "benchmarks": _benchmarks,
    "modules": _modules,
}


def generated(text: str) -> str:
    """``text`` with its generated parts made anew."""

    def made(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- begin {name} -->\n\n{GENERATED[name]()}\n\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", made, text, flags=re.DOTALL)


# -- comparing and writing ------------------------------------------------------------


@dataclass
class Result:
    before: str
    after: str
    problems: list[str]

    @property
    def differences(self) -> list[str]:
        """Where the page does not show what its programs print."""
        found = list(self.problems)
        shown, real = blocks(self.before), blocks(self.after)
        for a, b in zip(shown, real, strict=True):
            if comparable(a.text) != comparable(b.text):
                found.append(f"line {a.start + 1} shows\n{a.text}but the output is\n{b.text}")
        if generated(self.before) != self.before:
            found.append("a generated part is out of date")
        return found


_MOVING: Final = (
    (re.compile(r"\b\d+\.\d+ ?(ms|s)\b"), r"# \1"),
    (re.compile(r"\b\d+ (ms|s)\b"), r"# \1"),
    (re.compile(r"\b(?:\d+(?:\.\d+)?|less than 1)%"), "#%"),
    (re.compile(r"^( +\d+ +\d* +)\d+\.\d\d(?=  )"), r"\1#"),
    (re.compile(r"(?:\.\.\.[\w ]{0,16})?0x[0-9a-f]+"), "0x#"),
    (re.compile(r"(site-packages/jax/\S+):\d+"), r"\1:#"),
    (re.compile(r"^=+( .* )=+$"), r"=\1="),
    (re.compile(r"^( +)# s  \S+::.*"), r"\1# s  a test"),
    (re.compile(r"^(eager operations: .* of \d+) \(.*\)"), r"\1"),
)


def comparable(text: str) -> str:
    """``text`` without times, nor the width and the order that they bring about."""
    lines = []
    for line in text.split("\n"):
        still = line
        for pattern, replacement in _MOVING:
            still = pattern.sub(replacement, still)
        lines.append(line if still == line else re.sub(r"  +", "  ", still))
    if "compiled  again  seconds  function" in text:
        lines.sort()  # the most expensive comes first
    return "\n".join(lines)


def run(path: Path) -> Result:
    """Run the programs of a page; nothing is written."""
    before = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        page = Page(path, Path(folder).resolve())
        page.run()
    lines = before.split("\n")
    for block in reversed(blocks(before)):
        if block.start in page.shown:
            lines[block.start : block.end] = page.shown[block.start].split("\n")[:-1]
    return Result(before, generated("\n".join(lines)), page.problems)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    parser.add_argument("page", nargs="*", type=Path, help="pages; all if none is given")
    given = parser.parse_args()
    failed = False
    for path in given.page or pages():
        result = run(path)
        print(f"{path}: {'same' if result.before == result.after else 'changed'}", flush=True)
        for problem in result.differences if given.check else result.problems:
            failed = True
            print(problem, file=sys.stderr)
        if not given.check and comparable(result.before) != comparable(result.after):
            path.write_text(result.after, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
