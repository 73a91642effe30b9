"""Whatever goes wrong in the user's code: the user's error, right counts, and a sound process."""

from __future__ import annotations

import contextlib
import sys

import jax
import numpy as np
import pytest

from pytest_jaxcompile import CountUnavailableError, count_compiles
from pytest_jaxcompile.recording import recorder

X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)


def sound():
    """Negative control of every test here: afterwards things are counted as ever."""
    f = jax.jit(lambda x: x * 2)
    with count_compiles(cold=True) as log:
        f(X3)
        f(X4)
        f(X3)
    assert (log.of(f).count, log.of(f).traces, log.of(f).lowerings) == (2, 2, 2)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_in_a_trace(log, error):
    raising = [True]

    @jax.jit
    def inner(x):
        if raising:
            raise error("mine")
        return x * 2

    @jax.jit
    def outer(x):
        return inner(x) + 1

    for _ in range(2):
        with pytest.raises(error, match="mine"):
            outer(X3)
    assert (log.count, log.lowerings, log.traces) == (0, 0, 0)
    raising.clear()
    outer(X3)
    assert (log.of(outer).count, log.of(outer).lowerings) == (1, 1)
    sound()


def test_exceptions_of_arguments(log):
    """A static value whose ``__eq__``, ``__hash__`` or ``__repr__`` raises; a tree that does so."""

    class Static:
        def __init__(self, bad=None):
            self.bad = bad

        def __hash__(self):
            if self.bad == "hash":
                raise ValueError("mine: hash")
            return 1

        def __eq__(self, other):
            if self.bad == "eq":
                raise ValueError("mine: eq")
            return self is other

        def __repr__(self):
            if self.bad == "repr":
                raise ValueError("mine: repr")
            return "Static"

    @jax.tree_util.register_pytree_node_class
    class Tree:
        bad = False

        def tree_flatten(self):
            if self.bad:
                raise ValueError("mine: flatten")
            return (X3,), None

        @classmethod
        def tree_unflatten(cls, data, children):
            return cls()

    f = jax.jit(lambda x, s: x * 2, static_argnums=1)
    g = jax.jit(lambda tree: X3 * 2)
    f(X3, Static("repr"))  # nobody needs its text to compile
    assert log.of(f).count == 1
    assert "Static" in str(log[0].signature)
    with pytest.raises(Exception, match=r"mine: hash|hash"):
        f(X3, Static("hash"))
    with contextlib.suppress(Exception):  # whether JAX compares at all is JAX's to say
        f(X3, Static("eq"))
    bad = Tree()
    bad.bad = True
    with pytest.raises(Exception, match="mine: flatten"):
        g(bad)
    assert log.of(g).count == 0
    g(Tree())
    assert log.of(g).count == 1
    sound()


def test_metadata_of_a_tree_that_raises(log):
    class Metadata:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

        def __repr__(self):
            raise ValueError("mine: repr")

    class Node:
        pass

    jax.tree_util.register_pytree_node(Node, lambda n: ((X3,), Metadata()), lambda m, c: Node())
    f = jax.jit(lambda node: X3 * 2)
    f(Node())
    assert log.of(f).count == 1
    sound()


def test_a_static_value_that_lies_about_its_class(log):
    class Odd:
        @property
        def __class__(self):
            raise ValueError("mine: class")

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self is other

    f = jax.jit(lambda x, s: x * 2, static_argnums=1)
    with contextlib.suppress(ValueError):
        f(X3, Odd())
        with contextlib.suppress(CountUnavailableError):  # no number rather than a wrong one
            assert log.of(f).count == 1


def test_a_callable_whose_attributes_raise(log):
    class Callable:
        def __call__(self, x):
            return x * 2

        def __getattr__(self, name):
            if name in ("__wrapped__", "__name__", "func"):
                raise AttributeError(name)
            raise ValueError(f"mine: {name}")

    made = Callable()
    with contextlib.suppress(ValueError):
        jitted = jax.jit(made)
        jitted(X3)
        assert log.of(jitted).count == 1
    sound()


@pytest.mark.parametrize("left", [0, 20, 60, 100, 140, 180])
def test_recursion_near_its_limit(left):
    """Deep in the stack a call either works and counts, or raises what it would without us."""
    f = jax.jit(lambda x: x * 2)

    def deep(n):
        return f(X3) if n == 0 else deep(n - 1)

    depth = 0
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    failed = None
    with count_compiles(cold=True) as log:
        try:
            deep(limit - depth - left)
        except RecursionError as error:
            failed = error
        if failed is None:
            assert log.of(f).count == 1
        else:
            # No wrong number: a right one, or an error that says why there is none.
            with contextlib.suppress(Exception):
                assert log.of(f).count in (0, 1)
    sound()


def test_out_of_memory_in_xla(log):
    """A program that no memory holds: an exception of JAX's, at compile or at run time."""
    f = jax.jit(lambda x: jax.numpy.broadcast_to(x, (2**20, 2**20, 2**10)).sum(0)[0, 0] + x)
    with contextlib.suppress(Exception):
        jax.block_until_ready(jax.jit(lambda: jax.numpy.zeros((2**24, 2**20)))())
    f.lower(X3[:1].reshape(())).compile()
    assert log.of(f).count == 1
    sound()


def test_subclasses_of_ndarray(log):
    class Mine(np.ndarray):
        def __array_finalize__(self, obj):
            self.note = "mine"

        def __repr__(self):
            raise ValueError("mine: repr")

    class Quiet(np.ma.MaskedArray):
        pass

    f = jax.jit(lambda x: x * 2)
    for value in (X3.view(Mine), X3):
        with contextlib.suppress(TypeError):
            f(value)
    f(X3)
    assert log.of(f).count == 1
    sound()


def test_a_block_that_is_never_ended(log):
    """Its watch goes with the recording it belongs to; the next one is free of it."""
    f = jax.jit(lambda x: x * 2)
    with count_compiles() as inner:
        block = inner.none(of=f)
        block.__enter__()
    del block
    f(X3)
    assert log.of(f).count == 1
    sound()


def test_blocks_ended_in_the_wrong_order(log):
    f = jax.jit(lambda x: x * 2)
    one, two = log.at_most(1, of=f, fail_fast=True), log.exactly(1, of=f)
    one.__enter__()
    two.__enter__()
    f(X3)
    one.__exit__(None, None, None)
    two.__exit__(None, None, None)
    f(X4)
    assert log.of(f).count == 2


def test_an_exception_in_another_listener_is_not_ours(log):
    """A listener of somebody else that raises: JAX's behaviour, and the count stays true."""
    from jax._src import monitoring

    def bad(event, seconds, **more):
        raise ValueError("theirs")

    f = jax.jit(lambda x: x * 2)
    jax.monitoring.register_event_duration_secs_listener(bad)
    try:
        with contextlib.suppress(ValueError):
            f(X3)
    finally:
        monitoring._event_duration_secs_listeners.remove(bad)
    f(X3)
    f(X3)
    assert log.of(f).count >= 1
    sound()


def test_a_fault_of_ours_is_an_error_and_not_a_number(monkeypatch):
    """If reading an event fails inside the plugin, no count is given and the user's call works."""
    f = jax.jit(lambda x: x * 2)
    with count_compiles(cold=True) as log:
        f(X3)
        with monkeypatch.context() as patch:
            patch.setattr(recorder, "identify", lambda *a: 1 / 0)
            assert f(X4).tolist() == [2] * 4
        with pytest.raises(CountUnavailableError, match="ZeroDivisionError"):
            _ = log.count
    sound()


def test_a_fault_of_ours_does_not_spoil_the_next_recording(log, monkeypatch):
    """Also where somebody listens all the time, as with a report of the whole run."""
    f = jax.jit(lambda x: x * 2)
    with count_compiles() as faulty, monkeypatch.context() as patch:
        patch.setattr(recorder, "identify", lambda *a: 1 / 0)
        f(X3)
    with pytest.raises(CountUnavailableError):
        _ = faulty.count
    with pytest.raises(CountUnavailableError):
        _ = log.count  # the recording around it missed something too
    with count_compiles() as fine:
        f(X4)
    assert fine.of(f).count == 1


def test_modules_reloaded_and_deleted(fresh):
    """JAX deleted from ``sys.modules`` or imported again, NumPy reloaded: counted or an error."""
    found = fresh(
        """
        import importlib, sys, warnings
        warnings.simplefilter("ignore")
        import jax, numpy as np
        from pytest_jaxcompile import CountUnavailableError, count_compiles
        x = np.ones(3, np.float32)
        f = jax.jit(lambda x: x * 2)
        found = []
        def count(log):
            try:
                return log.count
            except CountUnavailableError:
                return "CountUnavailableError"
        with count_compiles(cold=True) as log:
            f(x)
            del sys.modules["jax"]
            f(np.ones(4, np.float32))
            found.append(count(log))
            sys.modules["jax"] = jax
        with count_compiles(cold=True) as log:
            f(x)
            found.append(count(log))
        importlib.reload(jax.numpy)
        with count_compiles(cold=True) as log:
            f(x)
            found.append(count(log))
        tell(found)
        """
    )
    assert found[0] in (2, "CountUnavailableError")
    assert found[1:] == [1, 1]
