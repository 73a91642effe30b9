"""The documentation runs, and shows what its programs print."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from pytest_jaxcompile.records import KINDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
JAX = importlib.import_module("jax").__version_info__

sys.path.insert(0, str(DOCS))
import update_outputs  # noqa: E402

sys.path.remove(str(DOCS))

PAGES = update_outputs.pages()
LIBRARIES = ("chex", "equinox", "flax", "optax", "jinja2")


def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.skipif(JAX < (0, 10), reason="outputs are shown as with a newer JAX")
@pytest.mark.parametrize("path", PAGES, ids=_id)
def test_a_page_runs_and_shows_what_it_prints(path):
    text = path.read_text(encoding="utf-8")
    for library in LIBRARIES:
        needs = r"--(jax-compile-)?html|pytest_jaxcompile html" if library == "jinja2" else None
        if re.search(needs or rf"^(import|from) {library}\b", text, re.MULTILINE):
            pytest.importorskip(library)
    differences = update_outputs.run(path).differences
    assert not differences, "\n".join([*differences, "", "python docs/update_outputs.py mends it"])


PAGE = """\
# A page

```python
# program.py
print({printed!r})
```

```text
three
```

```python
# test_it.py
import jax


def test_it(jax_compiles):
    with jax_compiles.exactly({number}):
        pass
```

```console
$ python program.py
```

```text
three
```
"""


@pytest.mark.parametrize(
    ("printed", "number", "wrong"),
    [
        ("three", 0, []),
        ("four", 0, ["line 9 shows\nthree\nbut the output is\nfour", "line 27 shows"]),
        ("three", 1, ["page.md:13: test_it.py: test_it failed"]),
    ],
)
def test_a_page_that_lies_would_be_seen(tmp_path, printed, number, wrong):
    path = tmp_path / "page.md"
    path.write_text(PAGE.format(printed=printed, number=number))
    differences = update_outputs.run(path).differences
    assert len(differences) == len(wrong)
    for difference, start in zip(differences, wrong, strict=True):
        assert difference.startswith(start)


def test_only_times_may_differ():
    same = update_outputs.comparable
    assert same("       3      2     0.57  step") == same("       3      2    12.01  step")
    assert same("3 passed in 0.12s") == same("3 passed in 13.45s")
    assert same("       3      2     0.57  step") != same("       3      1     0.57  step")
    assert same("step(f32[3])  a.py:3") != same("step(f32[4])  a.py:3")
    assert same("step(f32[3])  a.py:3") != same("step(f32[3])  a.py:4")


# -- what pages name -----------------------------------------------------------------


def named(text: str) -> set[str]:
    """Flags and ini settings of ours that a text names."""
    flags = set(re.findall(r"--jax-compile-[a-z-]*[a-z]", text))
    return flags | set(re.findall(r"\bjax_compile_[a-z_]*[a-z](?= ?=|`)", text))


def unknown(text: str) -> set[str]:
    flags, inis = update_outputs.options()
    return named(text) - set(flags) - set(inis) - {"jax_compile_seconds"}  # a JUnit property


TEXTS = [
    *PAGES,
    *(path for path in [ROOT / "CONTRIBUTING.md"] if path.exists()),
    *sorted((ROOT / ".github").rglob("*.yml")),
]


@pytest.mark.parametrize("path", TEXTS, ids=_id)
def test_flags_and_settings_exist(path):
    assert unknown(path.read_text(encoding="utf-8")) == set()


def test_an_unknown_flag_would_be_seen():
    text = "pytest --jax-compile-report --jax-compile-jason=x\njax_compile_limits = 3\n"
    assert unknown(text) == {"--jax-compile-jason", "jax_compile_limits"}


def test_every_flag_is_in_the_reference():
    flags, inis = update_outputs.options()
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert named(text) >= set(flags) | set(inis)


def test_commands_exist():
    help_text = (ROOT / "pytest_jaxcompile" / "command_line" / "commands.py").read_text(
        encoding="utf-8"
    )
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"python -m pytest_jaxcompile (\w+)", text):
            assert f'"{name}"' in help_text, f"{_id(path)} names {name}"


def test_every_kind_of_reason_has_its_page():
    pages = {path.stem for path in (DOCS / "reasons").glob("*.md")}
    assert pages == {"index", *KINDS}
    index = (DOCS / "reasons" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(\w+)\]\(\1\.md\)", index, re.MULTILINE) == list(KINDS)
    for kind in KINDS:
        text = (DOCS / "reasons" / f"{kind}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {kind}\n")
        assert "\n## Remedy\n" in text
        if kind != "unknown":
            assert re.search(rf"^E +\d+\. .*\b{kind}\b", text, re.MULTILINE), kind


@pytest.mark.parametrize("path", TEXTS, ids=_id)
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_nothing_of_one_machine_is_shown():
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])/(tmp|root|home|work|Users)/", text), _id(path)
