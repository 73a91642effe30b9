"""What to do, sentence by sentence; and nothing where nothing is sure."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_jaxcompile.reasons import lengths, nearest
from pytest_jaxcompile.reasons.kinds import with_hints
from pytest_jaxcompile.reasons.lengths import Lengths
from pytest_jaxcompile.reasons.nearest import Versions, differences
from pytest_jaxcompile.records import Kind, Leaf, Reason, Signature, Static

BARE = Signature()


def hint(
    kind: Kind,
    argument: str | None = None,
    before: str | None = None,
    after: str | None = None,
    *,
    signature: Signature = BARE,
    name: str = "step",
    beside: Iterable[Reason] = (),
) -> str | None:
    reasons = (Reason(kind, argument, before, after), *beside)
    return with_hints(reasons, signature, Versions(), name)[0].hint


def static(text: str, kind: str = "builtins.int", compares: str = "value") -> Signature:
    value = Static(text, kind, compares, 1)  # type: ignore[arg-type]
    return Signature(static=(("cfg", value),))


# -- the function -----------------------------------------------------------------------


def test_a_function_made_anew_says_where_to_move_the_jit() -> None:
    assert hint("new_function") == (
        "step was made and jitted anew: move jax.jit out of the loop or function that repeats it, "
        "to where it runs once, and keep its result"
    )


def test_a_lambda_is_called_a_lambda() -> None:
    told = hint("new_function", name="<lambda>")
    assert told is not None
    assert told.startswith("a lambda was made and jitted anew: move jax.jit out of the loop")


def test_other_options() -> None:
    told = hint("jit_options", None, "no inline", "inline=True")
    assert told == "jit step once, with one set of options, and call that"


def test_an_option_of_the_configuration_is_named() -> None:
    assert hint("config", None, "jax_enable_x64=False", "jax_enable_x64=True") == (
        "set jax_enable_x64 once, before the first call, or expect one executable for each value"
    )


def test_another_context_is_not_called_an_option() -> None:
    assert hint("config", None, "mesh_context_manager=default", "mesh_context_manager=Mesh()") == (
        "make every call in the same context, or expect one executable for each"
    )


def test_a_context_without_a_name_has_no_hint() -> None:
    assert hint("config", None, "one trace context", "another one") is None


@pytest.mark.parametrize("transform", [("linearize",), ("transpose",), ("transpose", "linearize")])
def test_a_gradient_outside_of_jit(transform: tuple[str, ...]) -> None:
    assert hint("transform", signature=Signature(transform=transform)) == (
        "outside of jit, a gradient compiles its forward and its backward pass: "
        "jax.jit(jax.grad(step)) compiles one program"
    )


def test_the_gradient_of_a_lambda_does_not_spell_a_name() -> None:
    told = hint("transform", name="<lambda>", signature=Signature(transform=("linearize",)))
    assert told is not None
    assert told.endswith("jax.jit(jax.grad(...)) compiles one program")


def test_a_gradient_inside_other_transformations() -> None:
    assert hint("transform", signature=Signature(transform=("linearize", "vmap"))) == (
        "outside of jit, each pass of a gradient compiles a program of its own: "
        "jit the outermost function instead"
    )


def test_vmap_of_a_jitted_function() -> None:
    assert hint("transform", signature=Signature(transform=("vmap",))) == (
        "vmap of a jitted function compiles a program of its own for each batch size, "
        "beside those of step itself: expect them, or call step in one way only"
    )


@pytest.mark.parametrize("transform", [(), ("jvp",), ("vmap", "vmap")])
def test_other_transformations_have_no_hint(transform: tuple[str, ...]) -> None:
    assert hint("transform", signature=Signature(transform=transform)) is None


def test_evicted() -> None:
    assert hint("evicted") == (
        "nothing differs from an earlier call, its executable was dropped: look for "
        "jax.clear_caches(), clear_cache() of the function, or more signatures than the cache holds"
    )


def test_unknown_asks_for_a_report() -> None:
    assert "please report it" in (hint("unknown", None, "one program", "another") or "")


# -- the call ---------------------------------------------------------------------------


def test_an_object_made_anew_wants_equality() -> None:
    reads = "<m.Config object at 0x7f0000000010>", "<m.Config object at 0x7f0000000020>"
    signature = static(reads[1], "m.Config", "identity")
    assert hint("static_value", "cfg", *reads, signature=signature) == (
        "cfg compares by identity and was made anew: give Config __eq__ and __hash__, "
        "or pass the same object"
    )


@pytest.mark.parametrize("kind", ["builtins.function", "functools.partial"])
def test_a_function_made_anew_as_static_cannot_be_given_equality(kind: str) -> None:
    reads = "f (defined at a.py:3)", "f (defined at a.py:3), another object"
    signature = static(reads[0], kind, "identity")
    assert hint("static_value", "cfg", *reads, signature=signature) == (
        "cfg compares by identity and was made anew: make it once and pass the same object"
    )


def test_two_functions_that_are_no_two_makings_of_one_have_no_hint() -> None:
    reads = "relu (defined at a.py:3)", "gelu (defined at a.py:7)"
    signature = static(reads[1], "builtins.function", "identity")
    assert hint("static_value", "cfg", *reads, signature=signature) is None


@pytest.mark.parametrize(("text", "kind"), [("2", "builtins.int"), ("0.5", "builtins.float")])
def test_a_static_number(text: str, kind: str) -> None:
    assert hint("static_value", "cfg", "1", text, signature=static(text, kind)) == (
        "cfg is static, so each new value compiles: if it is only calculated with, "
        "make it an ordinary argument"
    )


@pytest.mark.parametrize("name", ["model", "model.lr", "model[0]"])
def test_a_leaf_that_a_library_holds_static(name: str) -> None:
    signature = Signature(
        tree=("call", None, ("model",), ("*",)),
        static=((name, Static("0.2", "builtins.float", "value", 2)),),
    )
    assert hint("static_value", name, "0.1", "0.2", signature=signature) == (
        f"{name} is no array, and so static, as all such is under equinox.filter_jit: "
        "make what varies an array, with jnp.asarray"
    )


def test_a_value_whose_functions_were_made_anew() -> None:
    texts = [f"Transform(update=<function update at 0x7f{n}>)" for n in (10, 11)]
    told = hint("static_value", "cfg", *texts, signature=static(texts[1], "m.Transform"))
    assert told == (
        "cfg holds functions that were made anew: make it once and pass the same object"
    )
    node = [f"TrainState with metadata {text}" for text in texts]
    assert hint("tree", "state", *node) == (
        "what TrainState holds as metadata was made anew: make it once and hold the same object"
    )
    other = node[1].replace("update at", "scale at")
    assert "varies" in (hint("tree", "state", node[0], other) or "")


def test_a_static_argument_beside_one_whose_name_it_begins_with() -> None:
    signature = Signature(
        tree=("call", None, ("model",), ("*",)),
        static=(("models", Static("2", "builtins.int", "value", 2)),),
    )
    told = hint("static_value", "models", "1", "2", signature=signature)
    assert told is not None
    assert told.startswith("models is static")


@pytest.mark.parametrize(
    ("before", "after", "signature"),
    [
        ("'relu'", "'gelu'", static("'gelu'", "builtins.str")),
        ("absent", "1", static("1")),
        ("1", "absent", Signature()),
    ],
)
def test_static_values_with_nothing_sure_to_say(
    before: str, after: str, signature: Signature
) -> None:
    assert hint("static_value", "cfg", before, after, signature=signature) is None


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("positional", "keyword", "y was passed by position, and is now passed by keyword"),
        ("keyword", "positional", "y was passed by keyword, and is now passed by position"),
        ("default", "keyword", "y was left to its default, and is now passed by keyword"),
        ("positional", "default", "y was passed by position, and is now left to its default"),
    ],
)
def test_the_spelling_of_a_call(before: str, after: str, sentence: str) -> None:
    assert hint("call_form", "y", before, after) == f"{sentence}: spell the call one way"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "State with metadata (1.0,)",
            "State with metadata (0.9,)",
            "what State holds as metadata is part of the structure: hold what varies as an array",
        ),
        (
            "list of 2",
            "list of 3",
            "each length of the list s compiles: stack it into one array, or pad it",
        ),
        (
            "dict of 2 with ['b']",
            "dict of 1",
            "pass s with the same members in every call",
        ),
        (
            "None",
            "an array",
            "None is another structure than a value: pass s in every call, or in none",
        ),
        ("list", "tuple", "pass s as one type in every call"),
        ("absent", "an array", None),
    ],
)
def test_structures(before: str, after: str, sentence: str | None) -> None:
    assert hint("tree", "s", before, after) == sentence


# -- arrays -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "spelled"),
    [
        ("int32", "float32", "jnp.asarray(s, jnp.float32)"),
        ("float32", "int32", "jnp.asarray(s, jnp.float32)"),
        ("bool", "int8", "jnp.asarray(s, jnp.int8)"),
        ("bfloat16", "float16", "jnp.asarray(s, jnp.float16)"),
        ("float32", "complex64", "jnp.asarray(s, jnp.complex64)"),
        ("uint8", "bool", "jnp.asarray(s, jnp.uint8)"),
    ],
)
def test_the_wider_dtype_is_proposed(before: str, after: str, spelled: str) -> None:
    assert hint("dtype", "s", before, after) == f"give s one dtype in every call: {spelled}"


def test_random_keys() -> None:
    assert hint("dtype", "k", "uint32", "key<fry>") == (
        "k is a typed key in one call and a raw one in another: use jax.random.key"
    )
    assert hint("dtype", "k", "key<rbg>", "key<fry>") == (
        "make k with one implementation of random keys"
    )


def test_a_dtype_that_the_configuration_changed_has_no_hint_of_its_own() -> None:
    config = Reason("config", None, "jax_enable_x64=False", "jax_enable_x64=True")
    assert hint("dtype", "s", "float32", "float64", beside=[config]) is None


def test_dtypes_without_a_common_name_have_no_hint() -> None:
    assert hint("dtype", "s", "float8_e4m3fn", "float32") is None
    assert hint("dtype", None, "int32", "float32") is None


def test_a_scalar_that_comes_back_strong() -> None:
    assert hint("weak_type", "s", "weak float32", "strong float32") == (
        "s was a Python scalar, or came from one, and is strongly typed now: "
        "start it strong, with jnp.asarray(s, jnp.float32)"
    )


def test_a_scalar_that_was_strong() -> None:
    assert hint("weak_type", "s", "strong int32", "weak int32") == (
        "s is a Python scalar, or comes from one, and was strongly typed before: "
        "pass jnp.asarray(s, jnp.int32)"
    )


def test_a_long_path_is_not_spelled_in_code() -> None:
    path = "state.optimizer['moments'].count"
    told = hint("weak_type", path, "weak int32", "strong int32")
    assert told is not None
    assert told.startswith(path)
    assert told.endswith("start it strong, with jnp.asarray(..., jnp.int32)")


def test_one_dtype_settles_the_weak_type_too() -> None:
    dtype = Reason("dtype", "s", "float32", "bool")
    assert hint("weak_type", "s", "weak float32", "strong bool", beside=[dtype]) is None
    assert hint("weak_type", None, "weak float32", "strong float32") is None


def test_a_sharding_that_changes() -> None:
    assert hint("sharding", "x", "unsharded", "P('d',) over mesh (d: 4) on cpu:0..3") == (
        "place it before the first call, with jax.device_put(x, sharding), "
        "or fix out_shardings so that it comes back as it went in"
    )
    assert hint("sharding", None, "unsharded", "P('d',)") is None


def test_devices() -> None:
    assert hint("device", "x", "cpu:0", "cpu:1") == (
        "keep x on one device, or expect one executable for each"
    )
    assert hint("device", None, "cpu:0", "cpu:0..3") == (
        "keep to one set of devices, or expect one executable for each"
    )


def test_commitment() -> None:
    assert hint("commitment", "x", "uncommitted", "committed") == (
        "jax.device_put with a device or sharding commits an array, and so does computing with "
        "a committed one: commit x in every call, or in none"
    )


@pytest.mark.parametrize("kind", ["sharding", "device"])
def test_commitment_that_follows_from_a_placement_has_no_hint(kind: Kind) -> None:
    placed = Reason(kind, "x", "a", "b")
    assert hint("commitment", "x", "uncommitted", "committed", beside=[placed]) is None
    other = Reason(kind, "y", "a", "b")
    assert hint("commitment", "x", "uncommitted", "committed", beside=[other]) is not None


# -- lengths ----------------------------------------------------------------------------


def lengths_hint(shapes: list[tuple[int | str, ...]], path: str = "x") -> str | None:
    """What the last of several calls is told."""
    story, told = Versions(), None
    for shape in shapes:
        signature = Signature((path,), (Leaf(shape, "float32"),))
        nearest = story.nearest(signature)
        if nearest is not None:
            reasons = with_hints(differences(nearest, signature), signature, story, "f")
            told = reasons[0].hint if reasons else told
        story.add(signature)
    return told


def test_lengths_that_padding_would_make_fewer() -> None:
    assert lengths_hint([(n,) for n in (3, 5, 6, 7, 9)]) == (
        "x had 5 lengths so far (3, 5, 6, 7, 9): padded to powers of two it would have 3 (4, 8, 16)"
    )


def test_lengths_that_padding_would_not_make_fewer() -> None:
    assert lengths_hint([(4,), (7,)]) == (
        "x had 2 lengths so far (4, 7): pad to a few fixed lengths if more are to come"
    )


def test_lengths_of_an_axis() -> None:
    assert lengths_hint([(8, n, 2) for n in (5, 6)]) == (
        "axis 1 of x had 2 lengths so far (5, 6): padded to powers of two it would have 1 (8)"
    )


def test_many_lengths_are_not_all_shown() -> None:
    assert lengths_hint([(n,) for n in range(1, 101)]) == (
        "x had 100 lengths so far (1, 2, 3, 4, 5, 6, ..., 100): "
        "padded to powers of two it would have 8 (1, 2, 4, 8, 16, 32, 64, 128)"
    )


def test_more_lengths_than_are_compared_with_are_still_counted() -> None:
    told = lengths_hint([(n,) for n in range(3 * nearest._RECENT)])
    assert told is not None
    assert told.startswith(f"x had {3 * nearest._RECENT} lengths so far")


def test_more_lengths_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "_KEPT", 10)
    told = lengths_hint([(n,) for n in range(1, 20)])
    assert told is not None
    assert told.startswith("x had more than 10 lengths so far")


@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 4), (5, 6)],
        [(3, 4), (3, 5), (4, 5)],
        [(3, 4), (3, 5), (4, 5), (3, 6)],
        [(3,), (3, 4)],
        [(), (3,)],
        [("n",), ("m",)],
    ],
)
def test_no_length_where_more_than_one_axis_changes(
    shapes: list[tuple[int | str, ...]],
) -> None:
    assert lengths_hint(shapes) is None


def test_no_length_without_a_path() -> None:
    assert lengths_hint([(3,), (4,)], path="") is None


def test_only_so_many_arguments_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "_VARIED", 2)
    story = Versions()
    for path in "abcd":
        assert story.shapes(path, (3,)).varied(1) == []
    assert len(story._shapes) == 2


def test_lengths_count_though_nobody_asked() -> None:
    """Between two reasons of shape there may be more compilations than are compared."""
    story = Versions()
    for n in range(300):
        story.add(Signature(("x",), (Leaf((n,), "float32"),)))
    assert len(story.shapes("x", (300,)).axes[1][0].sizes) == 301


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=40))
def test_lengths_against_independent_arithmetic(sizes: list[int]) -> None:
    lengths = Lengths()
    for size in sizes:
        lengths.add(size)
    assert lengths.sizes == sorted(set(sizes))
    assert lengths.padded == {2 ** math.ceil(math.log2(n)) if n else 0 for n in sizes}


def test_of_many_reasons_of_one_kind_the_first_few_get_a_hint() -> None:
    reasons = tuple(Reason("dtype", f"x{i}", "int32", "float32") for i in range(10))
    found = with_hints(reasons, Signature(), Versions(), "f")
    assert [reason.hint is not None for reason in found] == [True] * 4 + [False] * 6
