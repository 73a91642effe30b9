"""``python -m pytest_jaxcompile``, mostly as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from schema import check
from summaries import ENVIRONMENT, SHAPE, compiled, summary, usual

from pytest_jaxcompile.command_line import commands
from pytest_jaxcompile.report import files

ROOT = str(Path(__file__).parents[2])
RULE = re.compile(r"\n=+ JAX compilations =+\n")

Done = subprocess.CompletedProcess[str]
Python = Callable[..., Done]


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "PYTHON"))}
    return {**kept, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ROOT, "COLUMNS": "100"}


@pytest.fixture
def python(tmp_path: Path) -> Python:
    def run(*args: str, **options: Any) -> Done:
        options.setdefault("env", environment())
        command = [sys.executable, *args]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, **options
        )

    return run


@pytest.fixture
def ours(python: Python) -> Python:
    return lambda *args, **options: python("-m", "pytest_jaxcompile", *args, **options)


def program(folder: Path, source: str, name: str = "program.py") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))


# -- run: what python does ------------------------------------------------------------------

STATE = """
    import re, sys
    import __main__
    here = {k: str(v) for k, v in vars(__main__).items() if k.startswith("__")}
    here = {k: re.sub(" at 0x[0-9a-f]+", "", v) for k, v in here.items()}
    here.pop("__cached__", None)  # Python names a file for it that it does not write
    print(__name__, sys.argv, sys.path[0], __builtins__.__name__, __main__.__dict__ is globals())
    print(sorted(here.items()))
"""


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (STATE, 0),
        (STATE + "\n    sys.exit(7)", 7),
        ("raise SystemExit", 0),
        ("raise SystemExit('bye')", 1),
        ("def f():\n    return 1 / 0\nf()", 1),
        ("x = (", 1),
        ("import no_such_module_here", 1),
        ("try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError('x') from e", 1),
        ("import sys\nsys.excepthook = lambda *e: print('hooked', e[0].__name__)\n1 / 0", 1),
        ("import sys\nsys.stdout.write('no newline')\nsys.stderr.write('err')", 0),
    ],
)
def test_a_script_runs_as_under_python(
    tmp_path: Path, python: Python, ours: Python, source: str, code: int
) -> None:
    program(tmp_path, source)
    plain = python("program.py", "a", "--json", "-m")
    mine = ours("run", "program.py", "a", "--json", "-m")
    assert (plain.returncode, mine.returncode) == (code, code)
    out, report = RULE.split(mine.stdout)
    assert out == plain.stdout
    assert mine.stderr == plain.stderr
    assert "JAX was not imported" in report
    assert report.startswith("incomplete") is ("Error" in mine.stderr or "hooked" in out)


@pytest.mark.parametrize(
    "what",
    [
        ["-m", "package", "a"],
        ["-m", "package.inner", "-m", "b"],
        ["package", "a"],
        ["-m", "no_such_module"],
        ["-m", "package.none"],
        ["-m", "plain"],
        ["missing.py"],
        ["plain"],
    ],
)
def test_modules_and_folders_run_as_under_python(
    tmp_path: Path, python: Python, ours: Python, what: list[str]
) -> None:
    program(tmp_path, STATE, "package/__main__.py")
    program(tmp_path, "", "package/__init__.py")
    program(tmp_path, STATE + "\n    1 / 0", "package/inner.py")
    program(tmp_path, "", "plain/__init__.py")
    plain, mine = python(*what), ours("run", *what)
    assert mine.returncode == plain.returncode
    without_runpy = re.sub(r'  File "<frozen runpy>".*\n', "", plain.stderr)
    assert mine.stderr == without_runpy
    if plain.stdout:
        seen = RULE.split(mine.stdout)[0].replace(f"{tmp_path}/package", "package")
        assert seen == plain.stdout.replace(f"{tmp_path}/package", "package")
    else:
        assert "JAX compilations" not in mine.stdout


def test_ctrl_c_ends_with_130_and_a_report(tmp_path: Path) -> None:
    program(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)")
    command = [sys.executable, "-m", "pytest_jaxcompile", "run", "--json", "r", "program.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), text=True, stdout=-1, stderr=-1
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "pytest_jaxcompile" not in err
    assert RULE.search(out)
    assert json.loads((tmp_path / "r").read_text())["complete"] is False


def test_a_forked_child_reports_nothing(tmp_path: Path, ours: Python) -> None:
    program(tmp_path, "import os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()")
    assert len(RULE.findall(ours("run", "program.py").stdout)) == 1


def test_the_folder_of_the_script_may_shadow_modules(tmp_path: Path, ours: Python) -> None:
    pytest.importorskip("jinja2")
    for name in ("html", "secrets", "platform", "shutil", "trace", "json"):
        program(tmp_path, "raise RuntimeError('shadowed')", f"sub/{name}.py")
    program(tmp_path, "print('ran')", "sub/program.py")
    done = ours("run", "--json", "r.json", "--html", "r.html", "sub/program.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.glob("r.*")) == ["r.html", "r.json"]


# -- run: what is recorded --------------------------------------------------------------------

COMPILES = """
    import atexit, os, sys, threading
    assert not any(name.partition(".")[0] in ("jax", "jaxlib", "numpy") for name in sys.modules)
    os.environ["JAX_ENABLE_X64"] = "1"
    import jax, jax.numpy as jnp
    # Of no effect once a backend was started.
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

    @jax.jit
    def total(x):
        return x.sum()

    for n in (3, 4, 3):
        total(jnp.ones(n))
    threading.Thread(target=lambda: (threading.Event().wait(0.3), total(jnp.ones(5)))).start()
    atexit.register(lambda: total(jnp.ones(6)))
    os.chdir("/")
    print(jax.config.jax_enable_x64)
    sys.exit(5)
"""


def test_a_script_that_compiles(tmp_path: Path, ours: Python) -> None:
    program(tmp_path, COMPILES)
    done = ours("run", "--json", "r.json", "--trace", "t.json", "program.py")
    assert (done.returncode, done.stderr) == (5, "")
    out, report = RULE.split(done.stdout)
    assert out == "True\n"
    assert "4 compilations of 1 function, 3 of them again" in report
    assert f"JAX compilations written to {tmp_path / 'r.json'}" in report
    data = json.loads((tmp_path / "r.json").read_text())
    check(data)
    (total,) = (f for f in data["functions"] if not f["eager_op"])
    assert (total["module"], total["qualname"]) == ("__main__", "total")
    assert (total["compilations"], total["again"]) == (4, 3)
    assert total["reasons"] == {"shape": 3}
    assert total["defined_at"].startswith("program.py:")
    assert [place["place"] for place in data["outside"]] == ["script"]
    assert data["tests"] == []
    assert data["environment"]["devices"] == ["cpu:0", "cpu:1"]
    assert data["environment"]["pytest"] is None
    assert data["complete"] is True
    threads = {
        item["thread"]
        for item in data["outside"][0]["compilations"]
        if not data["functions"][item["function"]]["eager_op"]
    }
    assert len(threads) == 2
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    shown = ours("show", "r.json").stdout
    assert report.startswith(shown)


def test_the_schema_is_checked_for_real(tmp_path: Path) -> None:
    """The negative control of the test before."""
    data = usual().to_json()
    data["functions"][0]["seconds"] = -1
    with pytest.raises(jsonschema.ValidationError):
        check(data)


# -- the other commands -----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process is; with ``old.json`` and ``new.json``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    files.save_json("old.json", usual())
    files.save_json("new.json", summary({"t.py::a": [compiled(), compiled("step", SHAPE)] * 3}))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["show", "old.json"]) == 0
    shown = capsys.readouterr().out
    assert "3 compilations of 2 functions, 1 of them again" in shown
    assert "app.model.step" in shown


def test_html(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    assert commands.main(["html", "old.json"]) == 0
    assert commands.main(["html", "old.json", "-o", "other"]) == 0
    assert "app.model" in (folder / "old.html").read_text()
    assert (folder / "old.html").read_bytes() == (folder / "other").read_bytes()
    assert capsys.readouterr().out == "written to old.html\nwritten to other\n"


def test_diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["diff", "old.json", "new.json"]) == 0
    text = capsys.readouterr().out
    assert "+4  2 -> 6  app.model.step" in text
    assert "Compile no longer (1):" in text
    assert commands.main(["diff", "--markdown", "old.json", "new.json"]) == 0
    assert capsys.readouterr().out.startswith("### JAX compilations\n")
    assert commands.main(["diff", "old.json", "old.json"]) == 0
    assert capsys.readouterr().out.startswith("No function compiles more or less.")


def test_merge_then_show_and_diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["merge", "-o", "all.json", "old.json", "new.json"]) == 0
    assert capsys.readouterr().out == "merged into all.json: 2 reports, 2 tests, 10 compilations\n"
    data = json.loads((folder / "all.json").read_text())
    check(data)
    assert data["totals"]["compilations"] == 3 + 6
    assert commands.main(["show", "all.json"]) == 0
    assert commands.main(["diff", "old.json", "all.json"]) == 0
    assert "+6  2 -> 8  app.model.step" in capsys.readouterr().out


def test_merge_points_out_where_processes_part(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, names in enumerate((["step", "log"], ["step"])):
        found = {**ENVIRONMENT, "process_index": index, "process_count": 2}
        records = [compiled(name) for name in names]
        files.save_json(f"{index}.json", summary({}, {"script": records}, environment=found))
    assert commands.main(["merge", "-o", "all.json", "0.json", "1.json"]) == 0
    told = "app.model.log (app/model.py:10) compiled in 0.json, not in 1.json"
    assert capsys.readouterr().out.splitlines()[1:] == [told]
    check(json.loads((folder / "all.json").read_text()))
    assert commands.main(["merge", "--no-processes", "-o", "all.json", "0.json", "1.json"]) == 0
    assert told not in capsys.readouterr().out


def test_info(ours: Python) -> None:
    done = ours("info")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    told = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert told["python"] == sys.version.split()[0]
    assert told["pytest"] == pytest.__version__
    assert told["devices"].startswith("cpu:0")
    assert told["counting"] == "works"
    assert "  --jax-compile-json=PATH" in lines


BAD = {
    "truncated": '{"schema": 1,',
    "foreign": '{"traceEvents": []}',
    "newer": '{"schema": 99, "functions": []}',
    "damaged": '{"schema": 1, "functions": []}',
    "page": "<html>",
}


@pytest.mark.parametrize("name", [*BAD, "none"])
@pytest.mark.parametrize(
    "command",
    [
        "show {}",
        "html {}",
        "diff {} old.json",
        "diff old.json {}",
        "merge -o new.json old.json {}",
    ],
)
def test_a_bad_file_is_one_line_and_loses_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    for bad, text in BAD.items():
        (folder / bad).write_text(text)
    before = contents(folder)
    assert commands.main(command.format(name).split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(f"python -m pytest_jaxcompile: error: cannot read {name}: .+\n", err)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("merge -o old.json old.json new.json", "old.json is an input too, and would be lost"),
        ("html old.json -o ./old.json", "is an input too"),
        ("merge -o no/all.json old.json new.json", "cannot write no/all.json: the folder"),
        ("html old.json -o no/page.html", "cannot write no/page.html: the folder"),
        ("run --json no/r.json program.py", "cannot write .*no/r.json: the folder"),
        ("run --json r --html r program.py", "two reports cannot both be written to r"),
        ("run", "run needs a SCRIPT, or -m and a MODULE"),
        ("run -m", "run needs a SCRIPT, or -m and a MODULE"),
        ("run -x program.py", "run has no option -x"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_loses_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, why: str
) -> None:
    program(folder, "open('ran', 'w')")
    before = contents(folder)
    assert commands.main(command.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(f"python -m pytest_jaxcompile: error: .*{why}.*\n", err)
    assert contents(folder) == before


@pytest.mark.parametrize(
    "command", ["", "shew x", "show", "diff a", "merge a b", "run --jsn x y", "run --json"]
)
def test_wrong_usage_is_one_line(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        commands.main(command.split())
    assert caught.value.code == 2
    assert re.fullmatch(
        r"python -m pytest_jaxcompile.*: error: .+ --help\)\n", capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["", "run", "show", "html", "diff", "merge", "info"])
def test_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        commands.main([*command.split(), "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: python -m pytest_jaxcompile {command}".rstrip())
    if not command:
        for name in ("run", "show", "html", "diff", "merge", "info"):
            assert re.search(rf"^    {name} +\w", shown, re.MULTILINE), name


def test_help_imports_nothing_heavy(python: Python) -> None:
    source = """
        import sys
        heavy = {"jax", "numpy", "pytest", "jinja2", "logging", "colorsys"} - sys.modules.keys()
        from pytest_jaxcompile.command_line import commands
        try:
            commands.main(sys.argv[1:])
        except SystemExit:
            pass
        print("heavy", sorted(heavy & sys.modules.keys()))
    """
    for args in (["--help"], ["show", "none"]):
        assert python("-c", textwrap.dedent(source), *args).stdout.splitlines()[-1] == "heavy []"
    imports_one = source.replace("try:", "import colorsys\n        try:")
    assert python("-c", textwrap.dedent(imports_one), "--help").stdout.endswith(
        "heavy ['colorsys']\n"
    )


def test_output_may_be_cut_off(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest_jaxcompile", "show", "old.json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command, cwd=folder, env=environment(), stdout=writer, stderr=-1, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
