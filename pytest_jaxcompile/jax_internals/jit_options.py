"""The options given to ``jit``, as text."""

from __future__ import annotations

from typing import Any, Final

from pytest_jaxcompile.jax_internals.call_frames import Stack

_MAX_KNOWN: Final = 4096
_option_names: dict[type, tuple[str, ...]] = {}
_options: dict[tuple[Any, ...], tuple[tuple[str, str], ...]] = {}
"""How options read, by what JAX itself has in its keys."""


def options_of(stack: Stack) -> tuple[tuple[str, str], ...]:
    """The options of the call on the stack, as :func:`options_key` has them."""
    if stack.options is None:
        stack.options = options_key(stack.info)
    return stack.options


def options_key(info: Any) -> tuple[tuple[str, str], ...]:
    """The options given to ``jit``, as text, those at their default left out."""
    if info is None:
        return ()
    names = _option_names.get(type(info))
    if names is None:
        names = _option_names[type(info)] = tuple(name for name in _OPTIONS if hasattr(info, name))
    values = tuple([getattr(info, name) for name in names])
    try:
        known = _options.get(values)
    except TypeError:  # ``abstracted_axes``, until 0.7, may be a dict
        return _options_text(names, values)
    if known is None:
        if len(_options) > _MAX_KNOWN:
            _options.clear()
        known = _options[values] = _options_text(names, values)
    return known


def _options_text(names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.removesuffix("_leaves").removesuffix("_kvs"), _option(value, _OPTIONS[name]))
        for name, value in zip(names, values, strict=True)
        if value != _OPTIONS[name] and not _unspecified(value) and not _automatic(value)
    )


def _unspecified(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        v is None or type(v).__name__ == "UnspecifiedValue" for v in value
    )


def _automatic(value: Any) -> bool:
    """``inline`` from 0.12, where it was not given."""
    return getattr(value, "name", None) == "AUTO"


def _option(value: Any, default: Any) -> str:
    if isinstance(default, bool) and isinstance(value, int):
        return str(bool(value))
    if isinstance(value, tuple):
        texts = [_placed(each) for each in value]
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return _placed(value)


def _placed(value: Any) -> str:
    """A value as text; a sharding, whose own text has no devices, with their order."""
    try:
        devices = [d.id for d in value.mesh.devices.flat]
    except Exception:  # no sharding, or one over a mesh that has no devices
        return str(value)
    return f"{value} on {devices}"


_OPTIONS: dict[str, Any] = {
    "static_argnums": (),
    "static_argnames": (),
    "donate_argnums": (),
    "donate_argnames": (),
    "in_shardings_leaves": (),
    "out_shardings_leaves": (),
    "device": None,
    "backend": None,
    "keep_unused": False,
    "inline": False,
    "abstracted_axes": None,
    "compiler_options_kvs": (),
}


def forget_options() -> None:
    """Drop what was kept to be found quickly: nobody listens any more."""
    _options.clear()
