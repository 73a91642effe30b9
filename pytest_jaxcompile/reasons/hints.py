"""What to do about a reason. Short, and nothing where nothing is sure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pytest_jaxcompile.reasons.nearest import Versions
from pytest_jaxcompile.records import Kind, Leaf, Reason, Signature, Static, without_addresses

_SHOWN: Final = 6


class Case(NamedTuple):
    """What advice is given of: a compilation, and what its function was compiled for before."""

    signature: Signature
    earlier: Versions
    name: str
    reasons: set[tuple[Kind, str | None]]
    kinds: set[Kind]

    def leaf(self, path: str | None) -> Leaf | None:
        paths = self.signature.paths
        return self.signature.leaves[paths.index(path)] if path in paths else None


# -- the function ---------------------------------------------------------------------


def new_function(_: Reason, case: Case) -> str:
    what = "a lambda" if case.name == "<lambda>" else case.name
    return (
        f"{what} was made and jitted anew: move jax.jit out of the loop or function that repeats "
        "it, to where it runs once, and keep its result"
    )


def jit_options(_: Reason, case: Case) -> str:
    return f"jit {case.name} once, with one set of options, and call that"


def config(reason: Reason, _: Case) -> str | None:
    after = reason.after or ""
    if "=" not in after:
        return None
    name = after.partition("=")[0]
    if name.startswith("jax_"):
        return f"set {name} once, before the first call, or expect one executable for each value"
    return "make every call in the same context, or expect one executable for each"


def transform(_: Reason, case: Case) -> str | None:
    transform, name = case.signature.transform, case.name
    passes = [t for t in transform if t in ("linearize", "transpose")]
    if passes and transform == tuple(passes):
        jitted = f"jax.jit(jax.grad({name if name.isidentifier() else '...'}))"
        return (
            "outside of jit, a gradient compiles its forward and its backward pass: "
            f"{jitted} compiles one program"
        )
    if passes:
        return (
            "outside of jit, each pass of a gradient compiles a program of its own: "
            "jit the outermost function instead"
        )
    if transform == ("vmap",):
        return (
            f"vmap of a jitted function compiles a program of its own for each batch size, "
            f"beside those of {name} itself: expect them, or call {name} in one way only"
        )
    return None


def evicted(_: Reason, __: Case) -> str:
    return (
        "nothing differs from an earlier call, its executable was dropped: look for "
        "jax.clear_caches(), clear_cache() of the function, or more signatures than the cache holds"
    )


def unknown(_: Reason, __: Case) -> str:
    return (
        "nothing that is known of the two differs: please report it, with the output of "
        "python -m pytest_jaxcompile info"
    )


# -- the call ---------------------------------------------------------------------------


def static(reason: Reason, case: Case) -> str | None:
    name = reason.argument
    value = dict(case.signature.static).get(name or "")
    if value is None or "absent" in (reason.before, reason.after):
        return None
    if value.compares == "identity":
        return _identity(reason, value)
    if _made_anew(reason):
        return f"{name} holds functions that were made anew: make it once and pass the same object"
    if _among_arguments(name or "", case.signature):
        return (
            f"{name} is no array, and so static, as all such is under equinox.filter_jit: "
            "make what varies an array, with jnp.asarray"
        )
    if value.type in ("builtins.int", "builtins.float"):
        return (
            f"{name} is static, so each new value compiles: if it is only calculated with, "
            "make it an ordinary argument"
        )
    return None


def _among_arguments(name: str, signature: Signature) -> bool:
    """Whether a static value is a leaf of an argument, which a library split."""
    names = signature.tree[2] if isinstance(signature.tree, tuple) else ()
    return any(name == n or name.startswith((f"{n}.", f"{n}[")) for n in names)


def _made_anew(reason: Reason) -> bool:
    """Whether what is told of before and after differs in addresses only."""
    before, after = reason.before or "", reason.after or ""
    plain = without_addresses(before)
    return plain != before and plain == without_addresses(after)


def _identity(reason: Reason, value: Static) -> str | None:
    before, after = (without_addresses(text or "") for text in (reason.before, reason.after))
    if before != after.removesuffix(", another object"):
        return None
    anew = f"{reason.argument} compares by identity and was made anew: "
    module, _, kind = value.type.rpartition(".")
    if module in ("builtins", "functools", "types"):
        return anew + "make it once and pass the same object"
    return anew + f"give {kind} __eq__ and __hash__, or pass the same object"


_SPELLING: Final = {
    "positional": "passed by position",
    "keyword": "passed by keyword",
    "default": "left to its default",
}


def call_form(reason: Reason, _: Case) -> str | None:
    before, after = _SPELLING.get(reason.before or ""), _SPELLING.get(reason.after or "")
    if before is None or after is None:
        return None
    return f"{reason.argument} was {before}, and is now {after}: spell the call one way"


def tree(reason: Reason, _: Case) -> str | None:
    name, before, after = reason.argument, reason.before or "", reason.after or ""
    if name is None or "absent" in (before, after):
        return None
    if " with metadata " in before and _made_anew(reason):
        kind = before.split(" ")[0]
        return f"what {kind} holds as metadata was made anew: make it once and hold the same object"
    if " with metadata " in before:
        return (
            f"what {before.split(' ')[0]} holds as metadata is part of the structure: "
            "hold what varies as an array"
        )
    count = re.compile(r"(\w+) of \d+")
    old, new = count.match(before), count.match(after)
    if old and new and old[1] in ("list", "tuple"):
        return f"each length of the {old[1]} {name} compiles: stack it into one array, or pad it"
    if old and new:
        return f"pass {name} with the same members in every call"
    if "None" in (before, after):
        return f"None is another structure than a value: pass {name} in every call, or in none"
    return f"pass {name} as one type in every call"


# -- arrays -----------------------------------------------------------------------------


def shape(reason: Reason, case: Case) -> str | None:
    """How many lengths there were, and what padding would make of them."""
    path, now = reason.argument, case.leaf(reason.argument)
    if path is None or now is None:
        return None
    shapes = case.earlier.shapes(path, now.shape)
    varied = shapes.varied(len(now.shape))
    if shapes.symbolic or len(shapes.axes) > 1 or len(varied) != 1:
        return None
    (axis,) = varied
    lengths = shapes.axes[len(now.shape)][axis]
    where = path if len(now.shape) == 1 else f"axis {axis} of {path}"
    number = f"more than {len(lengths.sizes)}" if lengths.more else str(len(lengths.sizes))
    text = f"{where} had {number} lengths so far ({_some(lengths.sizes)})"
    padded = sorted(lengths.padded)
    if len(padded) < len(lengths.sizes):
        return f"{text}: padded to powers of two it would have {len(padded)} ({_some(padded)})"
    return f"{text}: pad to a few fixed lengths if more are to come"


def _some(numbers: list[int]) -> str:
    if len(numbers) <= _SHOWN + 2:
        return ", ".join(map(str, numbers))
    return f"{', '.join(map(str, numbers[:_SHOWN]))}, ..., {numbers[-1]}"


_NUMBER: Final = re.compile(r"(bool|u?int|b?float|complex)(\d*)")


def dtype(reason: Reason, case: Case) -> str | None:
    name, dtypes = reason.argument, (reason.before or "", reason.after or "")
    if name is None or "config" in case.kinds:
        return None  # what the configuration makes of it is no choice of the caller's
    keys = [dtype.startswith("key<") for dtype in dtypes]
    if any(keys):
        if all(keys):
            return f"make {name} with one implementation of random keys"
        return f"{name} is a typed key in one call and a raw one in another: use jax.random.key"
    found = [_NUMBER.fullmatch(dtype) for dtype in dtypes]
    if not all(found):
        return None
    order = ("bool", "uint", "int", "bfloat", "float", "complex")
    # The wider of both, so that following the advice loses nothing.
    wider = max(found, key=lambda m: (order.index(m[1]), int(m[2] or 0)) if m else (0, 0))
    assert wider is not None
    return f"give {name} one dtype in every call: {_strong(name, wider[0])}"


def weak_type(reason: Reason, case: Case) -> str | None:
    name, before, after = reason.argument, reason.before or "", reason.after or ""
    if name is None or ("dtype", name) in case.reasons:
        return None  # one dtype, strongly typed, settles both
    dtype = after.rpartition(" ")[2]
    if after.startswith("strong"):
        return (
            f"{name} was a Python scalar, or came from one, and is strongly typed now: "
            f"start it strong, with {_strong(name, dtype)}"
        )
    if before.startswith("strong"):
        return (
            f"{name} is a Python scalar, or comes from one, and was strongly typed before: "
            f"pass {_strong(name, dtype)}"
        )
    return None


def _strong(name: str, dtype: str) -> str:
    value = name if len(name) <= 24 else "..."
    return f"jnp.asarray({value}, jnp.{'bool_' if dtype == 'bool' else dtype})"


def device(reason: Reason, _: Case) -> str:
    what = f"{reason.argument} on one device" if reason.argument else "to one set of devices"
    return f"keep {what}, or expect one executable for each"


def sharding(reason: Reason, _: Case) -> str | None:
    if reason.argument is None:
        return None
    return (
        f"place it before the first call, with jax.device_put({reason.argument}, sharding), "
        "or fix out_shardings so that it comes back as it went in"
    )


def commitment(reason: Reason, case: Case) -> str | None:
    name = reason.argument
    if name is None or not case.reasons.isdisjoint({("sharding", name), ("device", name)}):
        return None  # follows from where it was placed
    return (
        f"jax.device_put with a device or sharding commits an array, and so does computing with "
        f"a committed one: commit {name} in every call, or in none"
    )
