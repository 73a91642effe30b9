"""Reasons are found by comparing records; no JAX is needed to test that."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signatures import BASE, MESH, SINGLE, call, leaf, metadata, number, told, with_x, with_y

from pytest_jaxcompile.reasons import differences as differ
from pytest_jaxcompile.reasons import nearest
from pytest_jaxcompile.reasons.nearest import Versions, differences, distance
from pytest_jaxcompile.records import KINDS, Leaf, Reason, Signature, Static

CHANGES: dict[str, tuple[Callable[[Signature], Signature], Reason]] = {
    "jit_options": (
        lambda s: replace(s, options=(("donate_argnums", "(0,)"),)),
        Reason("jit_options", None, "no donate_argnums", "donate_argnums=(0,)"),
    ),
    "config": (
        lambda s: replace(s, context=1, config=(("jax_enable_x64", "True"),)),
        Reason("config", None, "jax_enable_x64=False", "jax_enable_x64=True"),
    ),
    "transform": (
        lambda s: replace(s, transform=("vmap",)),
        Reason("transform", None, "a plain call", "vmap"),
    ),
    "tree": (
        lambda s: replace(s, tree=call(s=metadata("(0.9,)"), x="*", y="*")),
        Reason("tree", "s", "State with metadata (1.0,)", "State with metadata (0.9,)"),
    ),
    "static_value": (
        lambda s: replace(s, static=(("k", number(2)),)),
        Reason("static_value", "k", "1", "2"),
    ),
    "call_form": (
        lambda s: replace(s, call_form=(("k", "positional"), *s.call_form[1:])),
        Reason("call_form", "k", "keyword", "positional"),
    ),
    "shape": (lambda s: with_x(s, shape=(4,)), Reason("shape", "x", "(3,)", "(4,)")),
    "dtype": (lambda s: with_x(s, dtype="int32"), Reason("dtype", "x", "float32", "int32")),
    "weak_type": (
        lambda s: with_x(s, weak_type=True),
        Reason("weak_type", "x", "strong float32", "weak float32"),
    ),
    "device": (lambda s: with_y(s, devices="cpu:1"), Reason("device", "y", "cpu:0", "cpu:1")),
    "sharding": (
        lambda s: with_x(s, **MESH),
        Reason("sharding", "x", "single device on cpu:0", "P('d',) over mesh (d: 4) on cpu:0..3"),
    ),
    "commitment": (
        lambda s: with_x(s, sharding=None, devices=None, committed=False),
        Reason("commitment", "x", "committed", "uncommitted"),
    ),
}
PAIRS = [p for p in itertools.combinations(CHANGES, 2) if set(p) != {"sharding", "commitment"}]


@pytest.mark.parametrize("kind", CHANGES)
def test_one_difference_is_told_alone(kind: str) -> None:
    change, reason = CHANGES[kind]
    assert differences(BASE, change(BASE)) == (reason,)


def test_every_kind_that_signatures_tell_is_tested() -> None:
    # The recorder tells of new functions and evictions: it knows objects and caches.
    assert set(KINDS) - set(CHANGES) == {"new_function", "evicted", "unknown"}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_no_difference_hides_another(first: str, second: str) -> None:
    changed = CHANGES[second][0](CHANGES[first][0](BASE))
    ranked = sorted((first, second), key=KINDS.index)  # type: ignore[arg-type]
    found = differences(BASE, changed)
    assert [reason.kind for reason in found] == ranked
    for kind, reason in zip(ranked, found, strict=True):
        told = CHANGES[kind][1]
        assert reason.argument == told.argument
        if {first, second} != {"dtype", "weak_type"}:
            assert (reason.before, reason.after) == (told.before, told.after)


def test_all_kinds_at_once_in_the_order_of_their_rank() -> None:
    changed = BASE
    for kind, (change, _) in CHANGES.items():
        if kind != "commitment":
            changed = change(changed)
    expected = [kind for kind in KINDS if kind in CHANGES and kind != "commitment"]
    assert [reason.kind for reason in differences(BASE, changed)] == expected


# -- single kinds ---------------------------------------------------------------------


def test_a_sharding_that_appears_is_told_before_the_commitment() -> None:
    free = with_x(BASE, sharding=None, devices=None, committed=False)
    found = differences(free, replace(with_x(BASE, **MESH), devices="cpu:0..3"))
    assert [(r.kind, r.argument, r.before) for r in found] == [
        ("sharding", "x", "unsharded"),
        ("commitment", "x", "uncommitted"),
    ]


def test_one_sharding_on_other_devices_is_another_device() -> None:
    moved = with_x(BASE, **{**MESH, "devices": "cpu:4..7"})
    assert differences(with_x(BASE, **MESH), moved) == (
        Reason("device", "x", "cpu:0..3", "cpu:4..7"),
    )


def test_other_devices_of_the_program_are_told_where_no_argument_tells_them() -> None:
    assert differences(BASE, replace(BASE, devices="cpu:1")) == (
        Reason("device", None, "cpu:0", "cpu:1"),
    )


def test_the_default_device_is_configuration() -> None:
    changed = replace(BASE, devices="cpu:1", context=1, config=(("jax_default_device", "cpu:1"),))
    assert differences(BASE, changed) == (
        Reason("config", None, "jax_default_device=default", "jax_default_device=cpu:1"),
    )


def test_a_context_without_a_name_is_still_configuration() -> None:
    (reason,) = differences(BASE, replace(BASE, context=1))
    assert (reason.kind, reason.argument) == ("config", None)
    assert reason.before != reason.after


def test_the_contexts_that_a_transformation_brings_are_not_told() -> None:
    changed = replace(BASE, transform=("vmap",), context=1, config=(("axis_env_state", "v"),))
    assert [r.kind for r in differences(BASE, changed)] == ["transform"]


def test_an_option_under_a_transformation_is_told() -> None:
    changed = replace(BASE, transform=("vmap",), context=1, config=(("jax_enable_x64", "True"),))
    assert [r.kind for r in differences(BASE, changed)] == ["config", "transform"]


def test_x64_comes_before_the_dtype_that_it_changed() -> None:
    changed = with_x(BASE, dtype="float64")
    changed = replace(changed, context=1, config=(("jax_enable_x64", "True"),))
    assert [r.kind for r in differences(BASE, changed)] == ["config", "dtype"]


def test_transformations_read_from_the_outside_in() -> None:
    nested = replace(BASE, transform=("linearize", "vmap"))
    (reason,) = differences(BASE, nested)
    assert reason.after == "linearize (forward pass of grad) of vmap"


def test_gradients_to_other_arguments_are_told_apart() -> None:
    backward = Signature(("", ""), (leaf(3), leaf()), transform=("transpose",))
    wider = replace(backward, paths=("",) * 3, leaves=(*backward.leaves, leaf(3)))
    (reason,) = differences(backward, wider)
    assert reason.kind == "transform"
    assert reason.before == "transpose (backward pass of grad) with 2 arrays"
    assert reason.after == "transpose (backward pass of grad) with 3 arrays"


def test_programs_of_other_arrays_and_nothing_else_are_unknown() -> None:
    (reason,) = differences(Signature(("",), (leaf(3),)), Signature(("", ""), (leaf(3), leaf(3))))
    assert reason == Reason("unknown", None, "a program of 1 arrays", "a program of 2 arrays")


TREES = {
    "None": (call(m="None"), call(m="*"), ("m", "None", "an array")),
    "list": (
        call(m=("list", None, ("[0]",), ("*",))),
        call(m=("tuple", None, ("[0]",), ("*",))),
        ("m", "list", "tuple"),
    ),
    "length": (
        call(m=("list", None, ("[0]",), ("*",))),
        call(m=("list", None, ("[0]", "[1]"), ("*", "*"))),
        ("m", "list of 1", "list of 2"),
    ),
    "keys": (
        call(m=("dict", None, ("['a']", "['b']"), ("*", "*"))),
        call(m=("dict", None, ("['a']", "['c']"), ("*", "*"))),
        ("m", "dict of 2 with ['b']", "dict of 2 with ['c']"),
    ),
    "deep": (
        call(m=("dict", None, ("['a']",), (("Point", None, (".x",), ("*",)),))),
        call(m=("dict", None, ("['a']",), (("Point", None, (".x",), ("None",)),))),
        ("m['a'].x", "an array", "None"),
    ),
    "argument": (
        call(m="*"),
        call(**{"m": "*", "args[1]": "*"}),
        ("args[1]", "absent", "an array"),
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_structures_are_told_where_they_part(name: str) -> None:
    before, after, (path, old, new) = TREES[name]
    found = differences(Signature(tree=before), Signature(tree=after))
    assert found == (Reason("tree", path, old, new),)


def test_one_more_of_args_is_another_structure() -> None:
    two = Signature(("a[0]",), (leaf(3),), call(**{"args[0]": "*"}), call_form=(("args[0]", "p"),))
    three = replace(
        two,
        paths=("a[0]", "a[1]"),
        leaves=two.leaves * 2,
        tree=call(**{"args[0]": "*", "args[1]": "*"}),
        call_form=(("args[0]", "p"), ("args[1]", "p")),
    )
    assert differences(two, three) == (Reason("tree", "args[1]", "absent", "an array"),)


@pytest.mark.parametrize("static", [True, False])
def test_a_default_left_out_is_another_spelling_and_nothing_else(static: bool) -> None:
    out = Signature(tree=call(x="*"), call_form=(("n", "default"), ("x", "positional")))
    given = replace(
        out,
        static=(("n", number(3)),) if static else (),
        tree=out.tree if static else call(n="*", x="*"),
        call_form=(("n", "keyword"), ("x", "positional")),
    )
    assert differences(out, given) == (Reason("call_form", "n", "default", "keyword"),)
    assert differences(given, out) == (Reason("call_form", "n", "keyword", "default"),)


# -- static values --------------------------------------------------------------------


def test_numbers_of_one_hash_are_two_values() -> None:
    assert hash(-1) == hash(-2)
    before = replace(BASE, static=(("k", number(-1)),))
    after = replace(BASE, static=(("k", number(-2)),))
    assert hash(before) != hash(after)
    assert differences(before, after) == (Reason("static_value", "k", "-1", "-2"),)


def test_equal_values_at_other_addresses_are_one_value() -> None:
    texts = ("<m.Config object at 0x7f01>", "<m.Config object at 0x7f02>")
    before, after = (
        replace(BASE, static=(("k", Static(text, "m.Config", "value", 7)),)) for text in texts
    )
    assert before == after
    assert hash(before) == hash(after)
    assert differences(before, with_x(after, shape=(4,))) == (Reason("shape", "x", "(3,)", "(4,)"),)


def test_one_object_whose_text_changed_is_one_value() -> None:
    a, b = (Static(text, "m.Box", "identity", 7) for text in ("Box(1)", "Box(2)"))
    assert a == b
    assert (a != b) is False
    assert a != ("Box(1)", "m.Box", "identity", 7)


@pytest.mark.parametrize(
    ("a", "b", "texts"),
    [
        (
            Static("Box()", "m.Box", "identity", 1),
            Static("Box()", "m.Box", "identity", 2),
            ("Box()", "Box(), another object"),
        ),
        (
            Static("[0, ...]", "m.Tuple", "value", 1),
            Static("[0, ...]", "m.Tuple", "value", 2),
            ("[0, ...]", "[0, ...], another value, in a part that is not shown"),
        ),
        (
            Static("Set(0)", "m.Set", "value", 1),
            Static("Set(0)", "m.Set", "value", 2),
            ("Set(0)", "Set(0), another value that reads the same"),
        ),
        (
            Static("1", "builtins.int", "value", 1),
            Static("1", "numpy.int64", "value", 1),
            ("1 (builtins.int)", "1 (numpy.int64)"),
        ),
        (
            Static("(" + "a, " * 40 + "1" + ", b" * 40 + ")", "builtins.tuple", "value", 1),
            Static("(" + "a, " * 40 + "2" + ", b" * 40 + ")", "builtins.tuple", "value", 2),
            (
                "... a, a, a, a, a, 1, b, b, b, b, b,...",
                "... a, a, a, a, a, 2, b, b, b, b, b,...",
            ),
        ),
    ],
)
def test_static_values_are_told_so_that_they_read_differently(
    a: Static, b: Static, texts: tuple[str, str]
) -> None:
    (reason,) = differences(*(Signature(tree=call(), static=(("k", each),)) for each in (a, b)))
    assert (reason.before, reason.after) == texts


# -- large trees ----------------------------------------------------------------------


def large(n: int = 1000, **leaves: Leaf) -> Signature:
    paths = tuple(f"params['w{i}']" for i in range(n))
    given = {f"params['{name}']": value for name, value in leaves.items()}
    members = tuple(f"['w{i}']" for i in range(n))
    tree = call(params=("dict", None, members, ("*",) * n))
    return Signature(paths, tuple(given.get(p, leaf(3, 4)) for p in paths), tree)


def test_one_leaf_of_a_thousand() -> None:
    story = Versions()
    story.add(large())
    changed = large(w537=leaf(3, 5))
    nearest = story.nearest(changed)
    assert nearest is not None
    assert differences(nearest, changed) == (Reason("shape", "params['w537']", "(3, 4)", "(3, 5)"),)


def test_many_differences_of_one_kind_are_told_in_number() -> None:
    before = large(100)
    after = replace(before, leaves=(leaf(4, 4),) * 100)
    found = differences(before, after)
    limit = differ._LIMIT
    assert [r.argument for r in found[:-1]] == list(before.paths[:limit])
    assert found[-1] == Reason("shape", f"{100 - limit} more arguments")
    assert distance(before, after) == 100
    one_more = replace(before, leaves=(leaf(4, 4),) * (limit + 1) + before.leaves[limit + 1 :])
    assert differences(before, one_more)[-1] == Reason("shape", "1 more argument")


def test_the_nearest_of_many_large_ones() -> None:
    story = Versions()
    for i in range(1, 6):
        story.add(large(w3=leaf(i), w999=leaf(i)))
    changed = large(w3=leaf(2), w999=leaf(9))
    nearest = story.nearest(changed)
    assert nearest == large(w3=leaf(2), w999=leaf(2))


# -- the nearest ----------------------------------------------------------------------


def test_nothing_is_near_in_an_empty_story() -> None:
    assert Versions().nearest(BASE) is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_one_with_the_fewest_differences_is_nearest(order: tuple[int, ...]) -> None:
    near = with_x(BASE, shape=(4,))
    middle = replace(with_x(BASE, shape=(5,)), static=(("k", number(2)),))
    far = replace(middle, transform=("vmap",))
    earlier = (near, middle, far)
    assert told(*(earlier[i] for i in order)).nearest(BASE) is near


def test_the_most_recent_wins_a_tie() -> None:
    earlier = [with_x(BASE, shape=(n,), dtype="int32") for n in (5, 6, 7)]
    assert told(*earlier).nearest(BASE) is earlier[2]
    assert told(*reversed(earlier)).nearest(BASE) is earlier[0]


def test_a_signature_seen_before_is_its_own_nearest() -> None:
    story = told(BASE, with_x(BASE, shape=(4,)))
    nearest = story.nearest(replace(BASE))
    assert nearest == BASE
    assert differences(nearest, BASE) == ()


def test_vmap_is_told_against_the_plain_call_not_against_a_gradient() -> None:
    plain = Signature(("x",), (leaf(3),))
    gradient = Signature(("", ""), (leaf(3), leaf()), transform=("transpose",))
    batched = Signature(("x",), (leaf(5, 3),), transform=("vmap",))
    assert told(plain, gradient).nearest(batched) is plain


def test_another_batch_size_is_a_shape() -> None:
    plain = Signature(("x",), (leaf(3),))
    batched = Signature(("x",), (leaf(5, 3),), transform=("vmap",))
    other = replace(batched, leaves=(leaf(6, 3),))
    nearest = told(plain, batched).nearest(other)
    assert nearest is batched
    assert [r.kind for r in differences(batched, other)] == ["shape"]


def test_a_compilation_costs_the_same_however_many_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def counted(*args: object) -> int:
        nonlocal looks
        looks += 1
        return distance(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(nearest, "distance", counted)
    story = Versions()
    for n in range(10_000):
        signature = with_y(with_x(BASE, shape=(n,)), shape=(n,))
        looks = 0
        story.nearest(signature)
        assert looks <= nearest._RECENT + 2
        story.add(signature)
    assert looks == nearest._RECENT + 1  # negative control: all of them were compared
    assert len(story) == len(list(story)) == nearest._RECENT
    assert next(iter(story)) is signature
    assert len(story._alike) == nearest._ALIKE
    assert len(story._seen) <= nearest._SEEN


def test_a_signature_of_long_ago_is_known_again() -> None:
    story = told(*(with_x(BASE, shape=(n,)) for n in range(500)))
    again = with_x(BASE, shape=(0,))
    assert again not in list(story)
    assert story.nearest(again) == again


def test_the_same_arrays_of_long_ago_are_nearest() -> None:
    """Against a recent one the static value would be told, and two shapes that explain nothing."""
    story = told(*(with_y(with_x(BASE, shape=(n,)), shape=(n,)) for n in range(500)))
    again = replace(with_y(with_x(BASE, shape=(7,)), shape=(7,)), static=(("k", number(2)),))
    nearest = story.nearest(again)
    assert nearest is not None
    assert differences(nearest, again) == (Reason("static_value", "k", "1", "2"),)


def test_all_else_of_long_ago_is_nearest() -> None:
    """One call under another option long ago, and many others since."""
    option = (("inline", "True"),)
    x64 = {"context": 1, "config": (("jax_enable_x64", "True"),)}
    earlier = [replace(BASE, options=option)]
    earlier += [replace(with_x(BASE, shape=(n,)), **x64) for n in range(10, 200)]
    asked = replace(with_x(BASE, shape=(5,)), options=option)
    nearest = told(*earlier).nearest(asked)
    assert nearest is not None
    assert [r.kind for r in differences(nearest, asked)] == ["shape"]


def test_fewer_large_signatures_are_kept_but_some() -> None:
    story = Versions()
    for n in range(40):
        story.add(large(3000, w1=leaf(n)))
    assert len(story) == nearest._RECENT_LEAST
    for n in range(40):
        story.add(with_x(BASE, shape=(n,)))
    assert len(story) == 40 + nearest._RECENT_LEAST - 3


# -- against a plain search, on random signatures -----------------------------------------

placements = st.sampled_from(
    [
        {},
        SINGLE,
        {**SINGLE, "devices": "cpu:1"},
        MESH,
        {**MESH, "devices": "cpu:4..7"},
        {**MESH, "sharding": "P() over mesh (d: 4)"},
    ]
)
leaves = st.builds(
    lambda shape, dtype, weak, placed: Leaf(shape, dtype, weak, **placed),
    st.sampled_from([(), (2,), (3,), (2, 3)]),
    st.sampled_from(["float32", "int32"]),
    st.booleans(),
    placements,
)
names = st.lists(st.sampled_from(["a", "b", "c", "", "d"]), min_size=1, max_size=4)
trees = st.recursive(
    st.sampled_from(["*", "None"]),
    lambda inner: st.one_of(
        st.builds(
            lambda t: ("list", None, tuple(f"[{i}]" for i in range(len(t))), tuple(t)),
            st.lists(inner, max_size=2),
        ),
        st.builds(
            lambda t, n: ("State", Static(f"({n},)", "builtins.tuple", "value", n), ("[0]",), (t,)),
            inner,
            st.integers(0, 2),
        ),
    ),
    max_leaves=3,
)
forms = st.sampled_from(["positional", "keyword", "default"])
options = st.sampled_from([(), (("inline", "True"),), (("donate_argnums", "(0,)"),)])
configs = st.sampled_from(
    [(0, ()), (1, (("jax_enable_x64", "True"),)), (2, ()), (3, (("mesh", "m"),))]
)


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    paths = tuple(draw(names))
    context, config = draw(configs)
    # What is left to its default has no value; of the others each is static or an array.
    form = draw(st.dictionaries(st.sampled_from("pqr"), forms, max_size=3))
    given = [name for name in sorted(form) if form[name] != "default"]
    static = [name for name in given if draw(st.booleans())]
    if draw(st.integers(0, 5)) == 0:  # a program that came without its call
        return replace(
            Signature(paths, tuple(draw(leaves) for _ in paths), config=config, context=context),
            options=draw(options),
            transform=("evaluation",),
        )
    return Signature(
        paths=paths,
        leaves=tuple(draw(leaves) for _ in paths),
        tree=call(**{name: draw(trees) for name in given if name not in static}),
        static=tuple((name, number(draw(st.integers(-2, 2)))) for name in static),
        call_form=tuple(sorted(form.items())),
        config=config,
        context=context,
        options=draw(options),
        transform=draw(st.sampled_from([(), ("vmap",), ("vmap", "vmap"), ("evaluation",)])),
        devices=draw(st.sampled_from([None, "cpu:0", "cpu:1"])),
    )


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(signatures(), signatures())
def test_distance_counts_what_differences_tells(a: Signature, b: Signature) -> None:
    found = differences(a, b)
    one_unknown = (a.tree == "*") != (b.tree == "*")
    if a.transform == b.transform:
        assert distance(a, b) == len(found) + one_unknown
    else:
        assert distance(a, b) >= len(found) + one_unknown
    if not one_unknown:
        assert (a == b) == (not found)
    assert [r.kind for r in found] == sorted((r.kind for r in found), key=KINDS.index)
    for reason in found:
        assert reason.before
        assert reason.after
        assert reason.before != reason.after
    limit = max(1, distance(a, b) - 1)
    assert distance(a, b, limit) >= limit or distance(a, b, limit) == distance(a, b)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(signatures(), min_size=1, max_size=12), signatures())
def test_of_few_the_nearest_is_found_and_the_most_recent_of_several(
    earlier: list[Signature], signature: Signature
) -> None:
    story = told(*earlier)
    nearest = story.nearest(signature)
    if signature in earlier:
        assert nearest == signature
        return
    # ``min`` gives the first of several, and the most recent comes first.
    expected = min(reversed(earlier), key=lambda e: distance(e, signature))
    assert nearest is not None
    assert distance(nearest, signature) == distance(expected, signature)
    assert nearest is expected


def test_nothing_is_told_of_a_call_that_is_not_known() -> None:
    known = replace(with_x(BASE, shape=(4,)), static=(("k", number(1)),))
    unknown = Signature(known.paths, known.leaves, transform=("evaluation",))
    (reason,) = differences(known, unknown)
    assert (reason.kind, reason.after) == ("transform", "evaluation")
    assert differences(replace(known, transform=("evaluation",)), unknown) == ()
    assert distance(replace(known, transform=("evaluation",)), unknown) == 1
