"""What the caller wrote: static values, the form of the call, the structure of its arguments."""

from __future__ import annotations

import inspect
import os
import reprlib
from collections.abc import Hashable, Sequence
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from pytest_jaxcompile.jax_internals.call_frames import Stack
from pytest_jaxcompile.jax_internals.jit_options import options_of
from pytest_jaxcompile.jax_internals.probe import Probe
from pytest_jaxcompile.recording.functions import bound, numbers
from pytest_jaxcompile.recording.split_calls import split_call
from pytest_jaxcompile.records import Signature, Static, Tree

MAX_SHARED = 8192
_shared: dict[Hashable, Any] = {}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlevel = 3


def share(value: Any) -> Any:
    """One object for equal values, so that ten thousand signatures keep a tree once."""
    if len(_shared) > MAX_SHARED:
        _shared.clear()
    return _shared.setdefault(value, value)


class _Form(NamedTuple):
    """Where the arguments of a call go; the same for all calls of a function spelled alike."""

    spelling: tuple[tuple[str, str], ...]
    static: tuple[tuple[str, int | str], ...]
    """Name of the parameter, and the position or keyword by which it was passed."""
    positional: tuple[tuple[str, int], ...]
    keywords: tuple[str, ...]
    options: tuple[tuple[str, str], ...]


_forms: dict[Hashable, _Form] = {}


def of_call(stack: Stack, p: Probe) -> Signature:
    """The part of the signature that the caller wrote."""
    # The options of a pmap's jit are JAX's own, made anew for every set of devices.
    options = () if stack.pmap else options_of(stack)
    args, kwargs = stack.args, stack.kwargs
    if args is None:
        return Signature(options=options)
    number = None if stack.pmap else numbers.of(stack.fun)
    key = (number, options, len(args), *kwargs)
    form = _forms.get(key) if number is not None else None
    if form is None:
        if len(_forms) > MAX_SHARED:
            _forms.clear()
        form = _form(stack, options)
        if number is not None:
            _forms[key] = form
    split = split_call(stack, p) if form.static else None
    if split is not None:
        return Signature(
            tree=share(_tree_of([(name, _tree(structure)) for name, structure in split.arguments])),
            static=tuple(sorted((name, static_of(value)) for name, value in split.static)),
            options=form.options,
        )
    static = [
        (name, static_of(args[at] if isinstance(at, int) else kwargs[at]))
        for name, at in form.static
    ]
    return Signature(
        tree=share(_call_tree(stack, p, form)),
        static=tuple(static),
        call_form=form.spelling,
        options=form.options,
    )


def _form(stack: Stack, options: tuple[tuple[str, str], ...]) -> _Form:
    info = None if stack.pmap else stack.info
    names = _Names(stack)
    static_numbers = _static_numbers(stack, info)
    static_names = frozenset(getattr(info, "static_argnames", None) or ())
    static: list[tuple[str, int | str]] = []
    spelling: list[tuple[str, str]] = []
    positional: list[tuple[str, int]] = []
    keywords: list[str] = []
    for index in range(len(stack.args or ())):
        name = names.position(index)
        spelling.append((name, "positional"))
        if index in static_numbers:
            static.append((name, index))
        else:
            positional.append((name, index))
    for name in sorted(stack.kwargs):
        spelling.append((name, "keyword"))
        if name in static_names:
            static.append((name, name))
        else:
            keywords.append(name)
    given = {name for name, _ in spelling}
    spelling += [(name, "default") for name in names.defaults if name not in given]
    return _Form(
        share(tuple(sorted(spelling))),
        tuple(sorted(static)),
        tuple(positional),
        tuple(keywords),
        _told_once(options),
    )


def _told_once(options: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """JAX finds names for argument numbers, and numbers for names: one of both tells all."""
    given = {name for name, _ in options}
    return tuple(
        (name, value)
        for name, value in options
        if not (name.endswith("_argnames") and name.replace("names", "nums") in given)
    )


class _Names:
    """Parameter names of the function called, by position."""

    def __init__(self, stack: Stack) -> None:
        if stack.pmap:
            signature = _signature(mapped(stack))
        else:
            signature = getattr(stack.info, "fun_signature", None)
        self._names: list[str] = []
        self._rest = "args"
        self.defaults: list[str] = []
        """Parameters that may be left out."""
        for parameter in signature.parameters.values() if signature is not None else ():
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = parameter.name
            elif parameter.kind is not parameter.VAR_KEYWORD:
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    self._names.append(parameter.name)
                if parameter.default is not parameter.empty:
                    self.defaults.append(parameter.name)

    def position(self, index: int) -> str:
        if index < len(self._names):
            return self._names[index]
        return f"{self._rest}[{index - len(self._names)}]"


def mapped(stack: Stack) -> Any:
    """The function that a pmap maps."""
    return stack.wrappers[-1] if len(stack.wrappers) > 1 else stack.fun


def mapped_paths(stack: Stack, p: Probe) -> tuple[str, ...]:
    """Paths of a pmap's arguments: what JAX compiles for it takes them flat, without names."""
    names = _Names(stack)
    tree = p.jax.tree_util
    static = _static_numbers(stack, None)
    values = [(names.position(i), v) for i, v in enumerate(stack.args or ()) if i not in static]
    values += sorted(stack.kwargs.items())
    return tuple(
        name + tree.keystr(path)
        for name, value in values
        for path, _ in tree.tree_flatten_with_path(value)[0]
    )


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # a callable without one
        return None


def _static_numbers(stack: Stack, info: Any) -> frozenset[int]:
    """Positions of the static arguments, counted from the front."""
    count = len(stack.args or ())
    given = stack.static_numbers if stack.pmap else getattr(info, "static_argnums", None)
    return frozenset(n % count if n < 0 else n for n in given or () if count)


def static_of(value: Any) -> Static:
    """A static value: how it reads, and by what it is compared."""
    kind = type(value)
    by_identity = getattr(kind, "__eq__", None) is object.__eq__ or isinstance(
        value, (FunctionType, MethodType)
    )
    key: int | None = None
    if isinstance(value, MethodType):
        key = hash(bound(value))  # two accesses of one method are equal
    elif by_identity:
        # Without a weak reference: JAX's caches keep the value, so its id is its own.
        key = numbers.of(value) or id(value)
    else:
        try:
            key = hash(value)
        except Exception:  # the user's __hash__; JAX has its own word to say on it
            key = None
    text = _text(value)
    if key is None:
        key = hash(text)
    return Static(
        text, f"{kind.__module__}.{kind.__qualname__}", "identity" if by_identity else "value", key
    )


def _text(value: Any) -> str:
    if isinstance(value, FunctionType):
        code = value.__code__
        file = os.path.basename(code.co_filename)
        return f"{value.__qualname__} (defined at {file}:{code.co_firstlineno})"
    try:
        text = _short.repr(value)
    except Exception:  # the user's __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 200 else text[:197] + "..."


def _call_tree(stack: Stack, p: Probe, form: _Form) -> Tree:
    """The structure of each parameter's value, whichever way it was passed."""
    positional, keywords = form.positional, form.keywords
    children: list[tuple[str, Tree]] = []
    treedef = getattr(stack.params, "in_tree", None)
    if treedef is not None and not stack.pmap:
        args, kwargs = treedef.children()
        subtrees = args.children() if positional else []
        data = kwargs.node_data()
        if len(subtrees) == len(positional):
            children += [(n, _tree(t)) for (n, _), t in zip(positional, subtrees, strict=True)]
        if data is not None and data[1]:
            children += [(n, _tree(t)) for n, t in zip(data[1], kwargs.children(), strict=True)]
    if len(children) != len(positional) + len(keywords):
        structure = p.jax.tree_util.tree_structure
        given: Sequence[Any] = stack.args or ()
        values = [(name, given[at]) for name, at in positional]
        values += [(name, stack.kwargs[name]) for name in keywords]
        children = [(name, _tree(structure(value))) for name, value in values]
    return _tree_of(children)


def _tree_of(arguments: list[tuple[str, Tree]]) -> Tree:
    arguments.sort()
    return ("call", None, tuple(n for n, _ in arguments), tuple(t for _, t in arguments))


_namesakes: dict[str, list[int | None]] = {}


def _type_name(kind: type) -> str:
    """A node type's name; with a number if there was another type of that name before."""
    name = kind.__qualname__
    if kind.__module__ == "builtins":
        return name
    seen = _namesakes.setdefault(name, [])
    number = numbers.of(kind)
    if number not in seen:
        seen.append(number)
    position = seen.index(number)
    return f"{name}#{position + 1}" if position else name


def _tree(treedef: Any) -> Tree:
    data = treedef.node_data()
    if data is None:
        return "*"
    kind, metadata = data
    if kind is type(None):
        return "None"
    count = treedef.num_leaves
    if treedef.num_nodes == count + 1:
        children: tuple[Tree, ...] = ("*",) * count
    else:
        children = tuple(map(_tree, treedef.children()))
    if issubclass(kind, dict) and isinstance(metadata, (list, tuple)):
        return (_type_name(kind), None, tuple(f"[{key!r}]" for key in metadata), children)
    fields = getattr(kind, "_fields", None)
    if metadata is None and fields is not None:
        return (_type_name(kind), None, tuple(f".{field}" for field in fields), children)
    names = tuple(f"[{index}]" for index in range(len(children)))
    if metadata is None:
        return (_type_name(kind), None, names, children)
    return (_type_name(kind), static_of(metadata), names, children)
