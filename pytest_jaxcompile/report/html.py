"""The page: one file that needs no network, no server and no other file."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final, NamedTuple

from pytest_jaxcompile.records import Kind, short_dtype
from pytest_jaxcompile.report import highlights
from pytest_jaxcompile.report.summary import FunctionTotals, Item, Summary

_SCRIPTS: Final = ("model.js", "picture.js", "tables.js")
_LEAVES_SHOWN: Final = 200
"""Arguments of one signature that the page holds; a reason names its argument in any case."""
_FORMS: Final = {"positional": "by position", "keyword": "by keyword", "default": "by its default"}
_AGAIN_SHOWN: Final = 5
_ADVICE_SHOWN: Final = 3


class _Look(NamedTuple):
    """How the picture shows a kind: never by colour alone."""

    glyph: str
    colour: str
    """Kinds of one family share a colour and differ in texture and glyph."""
    texture: str
    words: str


KINDS: Final[Mapping[Kind, _Look]] = {
    "shape": _Look("S", "orange", "solid", "the shape of an argument changed"),
    "dtype": _Look("D", "sky", "solid", "the dtype of an argument changed"),
    "weak_type": _Look("W", "sky", "hatch", "a Python scalar in one call, an array in another"),
    "tree": _Look("T", "yellow", "solid", "the structure of an argument changed"),
    "call_form": _Look("C", "yellow", "hatch", "by position, by keyword or left to its default"),
    "static_value": _Look("V", "purple", "solid", "a static argument had a new value"),
    "new_function": _Look("N", "red", "solid", "a new function object of the same definition"),
    "jit_options": _Look("J", "red", "hatch", "the same function under other jit options"),
    "transform": _Look("X", "red", "cross", "vmap, grad or another transformation of it"),
    "device": _Look("P", "green", "solid", "on another device"),
    "sharding": _Look("H", "green", "hatch", "laid out over devices in another way"),
    "commitment": _Look("M", "green", "cross", "bound to a device in one call, free in another"),
    "config": _Look("G", "blue", "solid", "another configuration or context of the trace"),
    "evicted": _Look("E", "ink", "hatch", "compiled before, and forgotten since"),
    "unknown": _Look("?", "ink", "cross", "no difference that is known"),
}


def render(summary: Summary) -> str:
    """The page as text. Raises ``ImportError`` where jinja2 is not installed."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError(
            "the HTML report needs jinja2: pip install 'pytest-jaxcompile[html]'"
        ) from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = "\n".join(map(_asset, _SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.from_string(_asset("report.html")).render(
        _answers(summary),
        style=Markup(_asset("report.css")),
        script=Markup(script),
        script_hash=digest,
        data=Markup(embeddable(_page(summary))),
    )
    # A path that is no Unicode holds lone surrogates, which no file in UTF-8 can.
    return page.encode("utf-8", "backslashreplace").decode()


def embeddable(value: Any) -> str:
    """JSON that no HTML parser can take for the end of its ``<script>`` or for a comment."""
    text = json.dumps(value, separators=(",", ":"), default=str)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


# -- what the page says without its script --------------------------------------------


def _answers(summary: Summary) -> dict[str, Any]:
    users, ops = summary.users(), summary.ops()
    again = highlights.again(summary)
    part = highlights.share(summary)
    return {
        "n": highlights.number,
        "duration": highlights.duration,
        "started": _moment(summary.started),
        "seconds": summary.seconds,
        "complete": summary.complete,
        "environment": [
            (key, _shown(value))
            for key, value in summary.environment.items()
            if value and key != "workers"
        ],
        "notes": [(key, _shown(value)) for key, value in summary.notes.items()],
        "compile_seconds": summary.compile_seconds,
        "share": part,
        "percent": None if part is None else highlights.percent(part),
        "workers": highlights.workers(summary),
        "phases": _phases(summary),
        "total": summary.compilations,
        "compilations": sum(f.compilations for f in users),
        "functions": len(users),
        "again": sum(f.again for f in users),
        "again_seconds": sum(a.seconds for a in again),
        "disk_hits": sum(f.disk_hits for f in (*users, *ops)),
        "eager": sum(f.compilations for f in ops),
        "eager_seconds": sum(f.seconds for f in ops),
        "tests": len(summary.tests),
        "again_functions": [(a, summary.functions[a.function]) for a in again[:_AGAIN_SHOWN]],
        "again_more": max(0, len(again) - _AGAIN_SHOWN),
        "advice": [
            (a, summary.functions[a.function]) for a in highlights.advice(summary)[:_ADVICE_SHOWN]
        ],
        "kinds": KINDS,
    }


def _phases(summary: Summary) -> list[tuple[str, float]]:
    """Seconds by phase of a compilation, in the order in which the phases happen."""
    totals = {"trace": 0.0, "lower": 0.0, "compile": 0.0, "load from disk": 0.0}
    for item in summary.items():
        totals["trace"] += item.trace_seconds
        totals["lower"] += item.lower_seconds
        totals["load from disk" if item.disk_hit else "compile"] += item.compile_seconds
    return list(totals.items())


def _moment(seconds: float) -> str | None:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds > 0 else None


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


# -- what the script reads ------------------------------------------------------------


class _Texts:
    """Every text once; the page refers to them by position."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, text: str | None) -> int | None:
        return None if text is None else self._known.setdefault(text, len(self._known))

    def all(self) -> list[str]:
        return list(self._known)


def _page(summary: Summary) -> dict[str, Any]:
    texts = _Texts()
    owned = [(item, owner) for owner, place in enumerate(_places(summary)) for item in place]
    owned.sort(key=lambda pair: pair[0].start)
    starts = [item.start for item, _ in owned]
    base = min([*starts, *([summary.started] if summary.started > 0 else [])], default=0.0)
    ends = [item.start + item.seconds for item, _ in owned]
    return {
        "seconds": max([summary.seconds, *(end - base for end in ends)]),
        "functions": [_function(function) for function in summary.functions],
        "signatures": [_signature(json.loads(text), texts) for text in summary.signatures],
        "owners": [[t.id, t.outcome, t.seconds] for t in summary.tests]
        + [[place.place, None, None] for place in summary.outside],
        "items": [_item(item, owner, base, texts) for item, owner in owned],
        "advice": [[a.function, a.kind, texts(a.hint)] for a in highlights.advice(summary)],
        "kinds": {kind: list(look) for kind, look in KINDS.items()},
        "texts": texts.all(),
    }


def _function(function: FunctionTotals) -> list[Any]:
    return [
        function.name,
        function.module,
        function.qualname,
        function.defined_at,
        function.eager_op,
        function.compilations,
        function.again,
        function.disk_hits,
        function.seconds,
        {kind: times for kind, times in function.reasons.items() if times},
    ]


def _places(summary: Summary) -> list[list[Item]]:
    return [
        *(test.compilations for test in summary.tests),
        *(place.compilations for place in summary.outside),
    ]


def _item(item: Item, owner: int, base: float, texts: _Texts) -> list[Any]:
    return [
        item.function,
        item.signature,
        owner,
        round(item.start - base, 6),
        round(item.trace_seconds, 6),
        round(item.lower_seconds, 6),
        round(item.compile_seconds, 6),
        int(item.disk_hit),
        texts(item.called_from),
        texts(item.phase),
        texts(item.thread),
        texts(item.worker),
        [
            [texts(r.kind), texts(r.argument), texts(r.before), texts(r.after), texts(r.hint)]
            for r in item.reasons
        ],
    ]


def _signature(signature: Mapping[str, Any], texts: _Texts) -> list[Any]:
    """Text of the whole; arguments; what else the cache keys on; how many are left out."""
    arguments = signature["arguments"]
    return [
        texts(signature["text"]),
        [texts(_argument(argument)) for argument in arguments[:_LEAVES_SHOWN]],
        [texts(fact) for fact in _facts(signature)],
        max(0, len(arguments) - _LEAVES_SHOWN),
    ]


def _argument(argument: Mapping[str, Any]) -> str:
    text = f"{short_dtype(argument['dtype'])}[{','.join(map(str, argument['shape']))}]"
    if argument["path"]:
        text = f"{argument['path']}: {text}"
    if argument["weak_type"]:
        text += " weak"
    if argument["committed"]:
        text += f" on {argument['devices'] or 'its device'}"
    if argument["sharding"]:
        text += f", {argument['sharding']}"
    return text


def _facts(signature: Mapping[str, Any]) -> list[str]:
    facts = [f"static {value['name']} = {value['value']}" for value in signature["static"]]
    facts += [f"{name} {_FORMS.get(form, form)}" for name, form in signature["call_form"].items()]
    facts += [f"config {name} = {value}" for name, value in signature["config"].items()]
    facts += [f"jit option {name} = {value}" for name, value in signature["options"].items()]
    if signature["transform"]:
        facts.append(f"transformed by {' of '.join(signature['transform'])}")
    if signature["devices"]:
        facts.append(f"built for {signature['devices']}")
    return facts
