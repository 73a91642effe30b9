"""``python -m pytest_jaxcompile``: run a program and report; show, compare and merge reports."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from pytest_jaxcompile.report.summary import Summary

_PROGRAM: Final = "python -m pytest_jaxcompile"
_USAGE: Final = 2
"""Exit code of what the user must mend."""

_RUN: Final = """\
Run a Python program as python would, and report at its end what JAX compiled.

The program sees its own sys.argv, sys.path[0] and __name__ == "__main__", and its exit code
is kept. Recording begins when the program imports jax. The report comes on standard output,
after all that the program writes itself. Processes that the program starts are not recorded.
"""
_RUN_EXAMPLES: Final = """\
examples:
  %(prog)s train.py --steps 10
  %(prog)s --html report.html train.py
  %(prog)s --json report.json -m my_package.train --steps 10
"""
_DIFF: Final = """\
Compare two JSON reports: which functions compile more, less, newly or no longer, and why.

Functions are matched by module, name and file, so that moved lines do not matter. Eager
operations are only added up: how many there are depends on what else ran in the process.
"""
_MERGE: Final = """\
Add up JSON reports: the shards of a test suite, or the processes of one multi-host run.

For processes of one run it is pointed out which functions some of them compiled and others
did not: in a program that all hosts must run alike that is where they part, and may hang.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code. Raises ``SystemExit`` for usage errors, and for that of a program."""
    given = list(sys.argv[1:] if argv is None else argv)
    program: list[str] = []
    if given[:1] == ["run"]:
        given, program = _split(given)
    arguments = _parser().parse_args(given)
    try:
        arguments.program = program
        return int(arguments.command(arguments))
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _Error as error:
        return _complain(error)
    except ValueError as error:
        from pytest_jaxcompile.report.files import ReportError

        if not isinstance(error, ReportError):
            raise
        return _complain(error)


class _Error(Exception):
    """Something that the user must mend, in one line."""


def _complain(error: Exception) -> int:
    print(f"{_PROGRAM}: error: {error}", file=sys.stderr)  # noqa: T201
    return _USAGE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=_PROGRAM, description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, does: Callable[..., int], text: str, **options: Any) -> _Parser:
        first = text.partition("\n")[0]
        added = commands.add_parser(
            name,
            help=first[0].lower() + first[1:].rstrip(".:"),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )
        added.set_defaults(command=does)
        return added

    run = command(
        "run",
        _run,
        _RUN,
        usage=f"{_PROGRAM} run [--json PATH] [--html PATH] [--trace PATH] "
        "(SCRIPT | -m MODULE) [ARG ...]",
        epilog=_RUN_EXAMPLES,
    )
    run.add_argument("--json", metavar="PATH", help="write everything recorded as JSON")
    run.add_argument("--html", metavar="PATH", help="write one self-contained page")
    run.add_argument("--trace", metavar="PATH", help="write Chrome trace events, for Perfetto")
    show = command("show", _show, "Show a JSON report as the terminal section of a test run.")
    show.add_argument("file", metavar="FILE")
    html = command("html", _html, "Make a page of a JSON report.")
    html.add_argument("file", metavar="FILE")
    html.add_argument("-o", dest="out", metavar="OUT", help="default: FILE, ending in .html")
    diff = command("diff", _diff, _DIFF)
    diff.add_argument("old", metavar="OLD")
    diff.add_argument("new", metavar="NEW")
    diff.add_argument("--markdown", action="store_true", help="for a pull request")
    merge = command("merge", _merge, _MERGE)
    merge.add_argument("-o", dest="out", metavar="OUT", required=True, help="where to write")
    merge.add_argument("files", metavar="FILE", nargs="+")
    merge.add_argument(
        "--processes",
        action=argparse.BooleanOptionalAction,
        help="the files are processes of one run, or are not; by default they are if JAX "
        "numbered them so, or if all ran the same tests",
    )
    command("info", _info, "Tell versions, devices, options, and whether this JAX can be counted.")
    return parser


def _split(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and the program's from the first that is not an option of ours."""
    index = 1
    while index < len(given):
        word = given[index]
        if word == "--":
            return list(given[:index]), list(given[index + 1 :])
        if not word.startswith("--") and word != "-h":
            break
        index += 1 if "=" in word or word in ("-h", "--help") else 2
    return list(given[:index]), list(given[index:])


def _run(arguments: argparse.Namespace) -> int:
    from pytest_jaxcompile.command_line import launch
    from pytest_jaxcompile.command_line.watch import Watch

    program: list[str] = arguments.program
    if program and program[0].startswith("-m"):
        program[:1] = [program[0][2:]] if program[0] != "-m" else []
        find: Callable[..., launch.Program] = launch.module
    else:
        find = launch.script
    if not program:
        raise _Error("run needs a SCRIPT, or -m and a MODULE")
    if find is launch.script and program[0].startswith("-"):
        raise _Error(f"run has no option {program[0]}; options of the program come after it")
    watch = Watch(_outputs(arguments))
    complete = True
    try:
        code = launch.run(partial(find, program[0]), program[1:])
        complete = code == 0
    except launch.NoProgramError as error:
        watch.cancel()
        print(error, file=sys.stderr)  # noqa: T201
        return error.code
    finally:
        watch.program_ended(complete)
    return code


def _outputs(arguments: argparse.Namespace) -> dict[str, Callable[[Summary], None]]:
    """How to write what was asked for, by path; whether it can be is looked at now."""
    from pytest_jaxcompile.report import files

    found: dict[str, Callable[[Summary], None]] = {}
    for name in ("json", "html", "trace"):
        given = getattr(arguments, name)
        if given is None:
            continue
        path = os.path.abspath(given)
        files.check_writable(path)
        if path in found:
            raise _Error(f"two reports cannot both be written to {given}")
        if name == "json":
            found[path] = partial(files.save_json, path)
        else:
            found[path] = partial(_save, path, _renderer(name))
    return found


def _save(path: str, render: Callable[[Summary], str], summary: Summary) -> None:
    from pytest_jaxcompile.report import files

    files.save(path, render(summary))


def _renderer(name: str) -> Callable[[Summary], str]:
    # Imported before the program runs: a file of its folder may have the name of a module.
    if name == "trace":
        from pytest_jaxcompile.report import chrome_trace

        return chrome_trace.render
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise _Error("a page needs jinja2: pip install 'pytest-jaxcompile[html]'") from None
    from pytest_jaxcompile.report import html

    return html.render


def _show(arguments: argparse.Namespace) -> int:
    from pytest_jaxcompile.report import files, terminal

    summary = files.load_json(arguments.file)
    _print(*terminal.lines(summary, shutil.get_terminal_size().columns))
    return 0


def _html(arguments: argparse.Namespace) -> int:
    from pytest_jaxcompile.report import files

    out = arguments.out or f"{os.path.splitext(arguments.file)[0]}.html"
    _not_among(out, [arguments.file])
    files.check_writable(out)
    render = _renderer("html")
    files.save(out, render(files.load_json(arguments.file)))
    _print(f"written to {out}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from pytest_jaxcompile.report import compare, files

    found = compare.diff(files.load_json(arguments.old), files.load_json(arguments.new))
    text = compare.diff_markdown(found) if arguments.markdown else compare.diff_text(found)
    _print(text.removesuffix("\n"))
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    from pytest_jaxcompile.report import files
    from pytest_jaxcompile.report.merge import merge

    _not_among(arguments.out, arguments.files)
    files.check_writable(arguments.out)
    summaries = [files.load_json(name) for name in arguments.files]
    merged = merge(summaries, arguments.files, arguments.processes)
    files.save_json(arguments.out, merged)
    _print(
        f"merged into {arguments.out}: {len(summaries)} reports, {len(merged.tests)} tests, "
        f"{merged.compilations} compilations",
        *_parted(merged),
    )
    return 0


def _parted(merged: Summary) -> Iterator[str]:
    for found in merged.notes.get("only_in", ()):
        place = f" ({found['defined_at']})" if found["defined_at"] else ""
        yield (
            f"{found['function']}{place} compiled in {', '.join(found['in'])}, "
            f"not in {', '.join(found['not_in'])}"
        )


def _not_among(out: str, inputs: Sequence[str]) -> None:
    """Refuse to replace what is read."""
    if any(os.path.realpath(out) == os.path.realpath(name) for name in inputs):
        raise _Error(f"{out} is an input too, and would be lost")


def _info(_: argparse.Namespace) -> int:
    from pytest_jaxcompile.command_line import info

    healthy = True
    for line, good in info.lines():
        healthy = healthy and good
        _print(line)
    return 0 if healthy else 1


def _print(*lines: str) -> None:
    """A name may hold characters that the terminal cannot show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))  # noqa: T201
    sys.stdout.flush()
