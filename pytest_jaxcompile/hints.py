"""What to do about a reason. Short, and nothing where nothing is sure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pytest_jaxcompile.records import Leaf, Reason, Signature


def with_hints(
    reasons: tuple[Reason, ...], signature: Signature, earlier: Iterable[Signature], name: str
) -> tuple[Reason, ...]:
    """``reasons`` with what each asks for, as far as the signatures tell."""
    return tuple(
        replace(reason, hint=_hint(reason, signature, earlier, name)) for reason in reasons
    )


def _hint(reason: Reason, signature: Signature, earlier: Iterable[Signature], name: str) -> str | None:
    argument = reason.argument
    match reason.kind:
        case "shape":
            return _lengths(argument, signature, earlier)
        case "dtype":
            return f"give {argument} one dtype, such as jnp.asarray({argument}, {reason.before!r})" if argument else None
        case "weak_type":
            return _weak(reason)
        case "static_value":
            return _static(reason, signature)
        case "call_form":
            return _form(reason)
        case "tree":
            return f"pass {argument} with one structure in every call" if argument else None
        case "config":
            return "call it under the same configuration every time, or set it once for the process"
        case "jit_options":
            return "jit the function once, with one set of options, and call that"
        case "new_function":
            return _new_function(name)
        case "sharding":
            return (
                f"place {argument or 'the input'} before the first call with jax.device_put(..., sharding), "
                "or fix out_shardings so that it comes back as it went in"
            )
        case "commitment":
            return (
                f"jax.device_put(..., device) commits an array to its device: do so for {argument or 'the input'} "
                "in every call or in none"
            )
        case "device":
            return f"keep {argument or 'the inputs'} on one device, or expect one executable per device"
        case "transform":
            return "a transformation of a jitted function is a program of its own: jit the transformed function to compile once"
        case "evicted":
            return (
                "nothing differs from an earlier call: look for jax.clear_caches(), clear_cache(), "
                "or a full cache"
            )
        case _:
            return None


def _leaf(signature: Signature, path: str | None) -> Leaf | None:
    if path is None or path not in signature.paths:
        return None
    return signature.leaves[signature.paths.index(path)]


def _lengths(path: str | None, signature: Signature, earlier: Iterable[Signature]) -> str | None:
    now = _leaf(signature, path)
    if now is None:
        return None
    shapes = {now.shape}
    for other in earlier:
        leaf = _leaf(other, path)
        if leaf is not None and len(leaf.shape) == len(now.shape):
            shapes.add(leaf.shape)
    axes = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
    if len(axes) != 1:
        return None
    lengths = sorted(n for n in {shape[axes[0]] for shape in shapes} if isinstance(n, int))
    padded = sorted({1 << max(0, n - 1).bit_length() for n in lengths})
    shown = ", ".join(map(str, lengths[:8])) + (", ..." if len(lengths) > 8 else "")
    text = f"{len(lengths)} lengths of {path} so far ({shown})"
    if len(padded) < len(lengths):
        return f"{text}; padded to {', '.join(map(str, padded))} they would be {len(padded)}"
    return f"{text}; pad to a few fixed lengths if there will be more"


def _weak(reason: Reason) -> str:
    dtype = (reason.after or "").split()[-1]
    if (reason.after or "").startswith("strong"):
        return (
            f"{reason.argument} was a Python scalar, or came from one, and is strongly typed now: "
            f"start with jnp.asarray({reason.argument}, jnp.{dtype})"
        )
    return (
        f"{reason.argument} is a Python scalar, or comes from one, and was strongly typed before: "
        f"pass jnp.asarray({reason.argument}, jnp.{dtype})"
    )


def _static(reason: Reason, signature: Signature) -> str:
    value = dict(signature.static).get(reason.argument or "")
    if value is not None and value.compares == "identity":
        return (
            f"{reason.argument} compares by identity and was made anew: keep one object, "
            "or give its class __eq__ and __hash__"
        )
    return f"every new value of the static argument {reason.argument} compiles; pass it as an array if it varies"


def _form(reason: Reason) -> str:
    if "default" in (reason.before, reason.after):
        return f"{reason.argument} is given in one call and left to its default in another: do one of both"
    return f"pass {reason.argument} by {reason.before} in every call, or by {reason.after}".replace(
        "by positional", "by position"
    )


def _new_function(name: str) -> str:
    what = "lambda" if "<lambda>" in name else "function, partial or bound method"
    return f"jax.jit got a new {what} of the same definition: call jax.jit once, outside the loop, and keep its result"
