"""Everything that is read from inside JAX, and from nowhere else.

JAX says when it traces, lowers and compiles (``jax.monitoring``), but not which
function, with which arguments, from which line. While such an event fires, the
frames of JAX's own call are on the stack; this module reads them. It writes
nothing: no attribute of JAX is replaced, no cache entry made.

What differs between JAX releases stands here, each with the release and the
reason; :func:`changes` looks whether the installed JAX still is what we read.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

from pytest_jaxcompile.errors import UnsupportedJaxError

TRACE_EVENT: Final = "/jax/core/compile/jaxpr_trace_duration"
LOWER_EVENT: Final = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE_EVENT: Final = "/jax/core/compile/backend_compile_duration"
DISK_HIT_EVENT: Final = "/jax/compilation_cache/cache_hits"

JAX, LIBRARY, OURS, USER = range(4)

_CALL_FRAMES = frozenset({"cache_miss", "_infer_params", "jit_lower", "jit_trace", "lower", "trace"})
_TRACE_FRAMES = frozenset({"_trace_for_jit", "_create_pjit_jaxpr"})
_PROGRAM_FRAMES = frozenset({"_pjit_call_impl_python", "_resolve_and_lower"})
_TRANSFORMS: Final = {
    "_pjit_batcher": "vmap",
    "_pjit_jvp": "jvp",
    "_pjit_linearize": "linearize",
    "_pjit_partial_eval": "linearize",
    "_pjit_transpose": "transpose",
    "_pjit_transpose_fancy": "transpose",
}


class Stack:
    """What the stack says while JAX fires an event. Lives only as long as the event."""

    __slots__ = (
        "args",
        "ahead_of_time",
        "called_from",
        "caller_is_jax",
        "compiler_options",
        "computation",
        "devices",
        "entry",
        "finished",
        "fun",
        "info",
        "jaxpr",
        "kwargs",
        "library",
        "lowered",
        "name",
        "operands",
        "params",
        "pmap",
        "related",
        "transforms",
        "wrappers",
    )

    def __init__(self) -> None:
        self.fun: Any = None
        """The very object given to ``jit``."""
        self.info: Any = None
        """JAX's ``PjitInfo``: the options given to ``jit``."""
        self.args: tuple[Any, ...] | None = None
        self.kwargs: dict[str, Any] = {}
        self.params: Any = None
        """JAX's ``PjitParams`` of the call, once traced."""
        self.entry: Any = None
        """JAX's cache entry that a completed trace fills."""
        self.jaxpr: Any = None
        self.name: str | None = None
        """What JAX calls the program: the function's own name."""
        self.operands: Any = None
        """The arrays, or stand-ins, that the compiled program takes."""
        self.computation: Any = None
        self.devices: Any = None
        self.compiler_options: tuple[tuple[str, Any], ...] = ()
        self.lowered: Any = None
        """The StableHLO module, once lowered."""
        self.ahead_of_time = False
        self.finished = True
        self.transforms: list[str] = []
        self.related: list[Any] = []
        """Jaxprs derived from one call by a transformation."""
        self.wrappers: list[Any] = []
        """Callables through which a library or JAX made the call, innermost first."""
        self.pmap = False
        self.caller_is_jax = False
        self.called_from: str | None = None
        self.library: str | None = None


def jaxpr_of(value: Any) -> Any:
    """The ``Jaxpr`` inside a ``ClosedJaxpr``; one object per trace (JAX 0.12 has only the former)."""
    return getattr(value, "jaxpr", value)


class Probe:
    """The installed JAX, as far as we read it. Make one with :func:`probe`."""

    def __init__(self) -> None:
        import jax
        import jax.monitoring
        from jax._src import config, dispatch, monitoring, pjit
        from jax._src.interpreters import partial_eval, pxla

        self.jax = jax
        self.version: tuple[int, ...] = jax.__version_info__
        self.monitoring = monitoring
        self._config = config
        self._pjit = pjit
        self._pe = partial_eval
        self._pxla = pxla
        self._dispatch = dispatch
        self.directory = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
        self._pjit_file = pjit.__file__
        self._pxla_file = pxla.__file__
        self._zones: dict[str, int] = {}
        self._library_prefixes = _library_prefixes()
        self._owned: dict[str, frozenset[int]] = {}
        self._baseline: dict[str, str] = {}
        self._states: list[tuple[str, Any]] = []
        self._context_memo: tuple[int, tuple[tuple[str, str], ...]] | None = None
        self.jitted_types = self._jitted_types()
        # Until 0.8 a trace event is a trace, nested or not. From 0.9 it also fires for a
        # trace that was cached, and from 0.10 nested traces are silent.
        self.traces_by_log = self.version >= (0, 9)
        self.trace_logger = partial_eval.logger.name if self.traces_by_log else ""
        # Phases announce their start from 0.6; before, their end is logged just before the event.
        self.announces_start = self.version >= (0, 6)
        self.phase_logger = dispatch.logger.name
        self._read_states()

    # -- identity -----------------------------------------------------------------

    def _jitted_types(self) -> tuple[type, ...]:
        """Types of what ``jax.jit`` and, until 0.7, ``jax.pmap`` return."""

        def probe(x: Any) -> Any:
            return x

        types = [type(self.jax.jit(probe))]
        mapped = type(self.jax.pmap(probe)) if self.version < (0, 8) else FunctionType
        if mapped is not FunctionType:
            types.append(mapped)
        return tuple(types)

    def is_jitted(self, value: object) -> bool:
        return isinstance(value, self.jitted_types)

    def is_pmapped(self, value: object) -> bool:
        """What ``jax.pmap`` returns: a type of its own until 0.7, since then a closure of JAX's."""
        if isinstance(value, self.jitted_types):
            return type(value) is not self.jitted_types[0]
        return (
            isinstance(value, FunctionType)
            and hasattr(value, "lower")
            and self.zone(value.__code__.co_filename) == JAX
        )

    def inner(self, jitted: Any) -> Any:
        """The object that was given to ``jit``."""
        return getattr(jitted, "_fun", None) or jitted.__wrapped__

    def info(self, jitted: Any) -> Any:
        """The options of a jitted function; an attribute from 0.6, a closure before."""
        info = getattr(jitted, "_jit_info", None)
        if info is None and hasattr(jitted, "_cache_miss"):
            info = dict(_cells(jitted._cache_miss)).get("jit_info")
        return info

    def live_jitted(self) -> Iterator[Any]:
        """All jitted functions alive, JAX's own included. Walks the heap: for error paths only."""
        import gc

        return (o for o in gc.get_objects() if type(o) in self.jitted_types)

    def owns(self, fun: Any) -> bool:
        """Whether JAX itself jits ``fun``, a function defined inside JAX.

        True if a jitted object of JAX's modules holds it, or if it is a closure
        that a function of JAX made and jitted (as for ``jax.lax`` primitives).
        """
        module = sys.modules.get(getattr(fun, "__module__", None) or "")
        if module is None:
            return False
        if id(fun) in self._jitted_in(module):
            return True
        outer, marker, _ = getattr(fun, "__qualname__", "").partition(".<locals>")
        if not marker:
            return False
        maker: Any = module
        for part in outer.split("."):
            maker = getattr(maker, part, None)
        while hasattr(maker, "__wrapped__"):
            maker = maker.__wrapped__
        code = getattr(maker, "__code__", None)
        return code is not None and not {"jit", "pjit"}.isdisjoint(code.co_names)

    def _jitted_in(self, module: Any) -> frozenset[int]:
        """Ids of the functions that the module's jitted objects hold; modules keep them alive."""
        name = module.__name__
        if name not in self._owned:
            found = set()
            for value in list(vars(module).values()):
                members = vars(value).values() if isinstance(value, type) else (value,)
                for member in members:
                    depth = 0
                    while member is not None and depth < 8:
                        if type(member) is self.jitted_types[0]:
                            found.add(id(self.inner(member)))
                        member = getattr(member, "__dict__", {}).get("__wrapped__")
                        depth += 1
            self._owned[name] = frozenset(found)
        return self._owned[name]

    # -- the stack ----------------------------------------------------------------

    def zone(self, filename: str) -> int:
        zone = self._zones.get(filename)
        if zone is None:
            if filename.startswith(self.directory) and "example_libraries" not in filename:
                zone = JAX
            elif filename.startswith(_OWN_DIRECTORY):
                zone = OURS
            elif filename.startswith(self._library_prefixes) or "-packages" + os.sep in filename:
                zone = LIBRARY
            elif filename.startswith("<frozen"):
                zone = LIBRARY
            else:
                zone = USER
            self._zones[filename] = zone
        return zone

    def read(self, frame: FrameType | None, traced: bool = False) -> Stack:
        """Read the call that is on the stack, from the event outwards to the user's line.

        ``traced`` tells that the event is a trace's own: else a trace frame means
        that the calls further out belong to another function.
        """
        stack = Stack()
        found = False
        generated: str | None = None
        while frame is not None:
            code = frame.f_code
            zone = self.zone(code.co_filename)
            if zone == JAX:
                if not found:
                    found = self._read_jax_frame(stack, frame, code, traced)
                else:
                    self._read_caller(stack, frame, code)
            elif zone == USER:
                line = f"{code.co_filename}:{frame.f_lineno}"
                if not code.co_filename.startswith("<"):
                    stack.called_from = line
                    break
                generated = generated or line
                found = True
            elif zone == LIBRARY and stack.fun is not None:
                self._read_library_frame(stack, frame, code)
            frame = frame.f_back
        stack.called_from = stack.called_from or generated
        return stack

    def _read_jax_frame(self, stack: Stack, frame: FrameType, code: CodeType, traced: bool) -> bool:
        """Take what one frame of JAX tells; True once the call itself is known."""
        name = code.co_name
        if name == "__exit__":
            stack.finished = frame.f_locals.get("exc_type") is None
        elif name in _PROGRAM_FRAMES and code.co_filename == self._pjit_file:
            local = frame.f_locals
            stack.jaxpr = local.get("jaxpr")
            stack.name = local.get("name")
            stack.operands = local.get("args")
        elif name == "_python_pjit_helper":  # until 0.8; later in ``cache_miss``
            stack.params = frame.f_locals.get("p")
        elif name in _TRANSFORMS and code.co_filename == self._pjit_file:
            stack.transforms.append(_TRANSFORMS[name])
            stack.related += [v for v in frame.f_locals.values() if _is_jaxpr(v)]
        elif name in _TRACE_FRAMES and code.co_filename == self._pjit_file:
            if not traced:
                return True
            stack.jaxpr = stack.jaxpr or frame.f_locals.get("jaxpr")
        elif name == "_cached_compilation" and code.co_filename == self._pxla_file:
            local = frame.f_locals
            stack.computation = local.get("computation")
            stack.devices = local.get("da")
            stack.compiler_options = local.get("compiler_options_kvs") or ()
        elif name == "_cached_lowering_to_hlo" and code.co_filename == self._pxla_file:
            local = frame.f_locals
            stack.lowered = getattr(local.get("lowering_result"), "module", None)
        elif name in _CALL_FRAMES:
            return self._read_call(stack, frame.f_locals, name, code.co_filename)
        return False

    def _read_call(self, stack: Stack, local: dict[str, Any], name: str, filename: str) -> bool:
        if name == "cache_miss" and filename == self._pjit_file.replace("pjit.py", "api.py"):
            stack.pmap = True
        elif filename != self._pjit_file:
            return False
        jitted = local.get("jit_func")
        if jitted is not None:
            stack.fun = self.inner(jitted)
        elif stack.pmap:
            stack.fun = getattr(getattr(local.get("p"), "flat_fun", None), "f", None)
        else:
            stack.fun = local.get("fun")
        stack.info = (
            self.info(jitted) if jitted is not None else local.get("jit_info", local.get("ji"))
        )
        stack.args = local.get("args")
        stack.kwargs = local.get("kwargs") or {}
        if stack.params is None:
            stack.params = local.get("p")
        if stack.entry is None:
            stack.entry = local.get("entry")
        return stack.fun is not None

    def _read_caller(self, stack: Stack, frame: FrameType, code: CodeType) -> None:
        name = code.co_name
        if name in _CALL_FRAMES:
            # Ahead of time nothing is called: no later event will show this call.
            stack.ahead_of_time |= name != "cache_miss"
            return
        if name == "reraise_with_filtered_traceback":
            return
        if name in ("_infer_params_internal", "_python_pjit_helper", "_run_python_pjit"):
            return
        if name == "wrapped" and "infer_params" in code.co_freevars:
            stack.wrappers.append(frame.f_locals["infer_params"])
            stack.pmap = True
            mapped = frame.f_locals.get("fun")
            if mapped is not None:
                stack.wrappers.append(mapped)
                local = frame.f_locals
                stack.args, stack.kwargs = local.get("args"), local.get("kwargs") or {}
        elif not stack.wrappers and not code.co_filename.endswith(_TRAMPOLINES):
            stack.caller_is_jax = True

    def _read_library_frame(self, stack: Stack, frame: FrameType, code: CodeType) -> None:
        if stack.library is None and not code.co_filename.startswith(self._stdlib):
            module = frame.f_globals.get("__name__", "")
            stack.library = f"{module}.{code.co_qualname}"
        if code.co_argcount and len(stack.wrappers) < 4:
            first = frame.f_locals.get(code.co_varnames[0])
            if callable(first) and not isinstance(first, type):
                stack.wrappers.append(first)

    @property
    def _stdlib(self) -> str:
        return self._library_prefixes[0]

    # -- the trace context ----------------------------------------------------------

    def _read_states(self) -> None:
        """The objects that hold JAX's options and contexts, by the name a user knows.

        JAX names the parts of its trace context from 0.10; until 0.7 the function that
        builds the context does; between, all options are watched.
        """
        names: set[str] = set()
        if hasattr(self._config, "trace_context_names"):
            names = set(self._config.trace_context_names())
        elif isinstance(self._config.trace_context, FunctionType):
            names = set(self._config.trace_context.__code__.co_names)
        for variable, state in vars(self._config).items():
            if isinstance(state, type) or not hasattr(type(state), "value"):
                continue
            name = getattr(state, "_name", None) or variable
            known = not names or not names.isdisjoint((name, variable))
            if known and name not in _OUTSIDE_ANY_KEY:
                self._states.append((name, state))
        self._baseline = {name: _text(state.value) for name, state in self._states}

    def context(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        """The trace context of this thread: its fingerprint, and the options that were changed.

        The context is JAX's own tuple, a part of every cache key; the options are
        compared with their values when this process first looked.
        """
        fingerprint = hash(self._config.trace_context())
        memo = self._context_memo
        if memo is None or memo[0] != fingerprint:
            changed = []
            for name, state in self._states:
                text = _text(state.value)
                if text != self._baseline[name]:
                    changed.append((name, text))
            self._context_memo = memo = (fingerprint, tuple(changed))
        return memo

    def baseline(self, name: str) -> str:
        return self._baseline.get(name, "")

    # -- what JAX tells -----------------------------------------------------------

    def subscribers(self, kind: str) -> list[Any]:
        """JAX's live list of listeners of a kind; its public getters (from 0.6) give copies."""
        return getattr(self.monitoring, f"_{kind}_listeners", [])  # type: ignore[no-any-return]

    def subscribe(self, kind: str, callback: Callable[..., None]) -> None:
        if callback not in self.subscribers(kind):
            getattr(self.jax.monitoring, f"register_{kind}_listener")(callback)

    def unsubscribe(self, kind: str, callback: Callable[..., None]) -> None:
        """Take ``callback`` off the list, in place; JAX's own way raises if it is gone."""
        listeners = self.subscribers(kind)
        if callback in listeners:
            listeners.remove(callback)

    @property
    def explains(self) -> bool:
        return bool(self._config.explain_cache_misses.value)

    @property
    def explains_here(self) -> bool:
        """Whether this thread turned the explanations on for itself."""
        return self._config.explain_cache_misses.get_local() is True

    def explain(self, on: bool) -> None:
        self.jax.config.update("jax_explain_cache_misses", on)

    @property
    def disabled(self) -> bool:
        return bool(self.jax.config.jax_disable_jit)

    # -- caches -------------------------------------------------------------------

    def forget(self, is_users: Callable[[Any], bool]) -> None:
        """Forget what was compiled for the functions that ``is_users`` accepts.

        JAX's fast dispatch caches are emptied for all functions; those of the others
        fill again without compiling, because the executables stay in the slower caches.
        """
        cache = type(self._pjit._cpp_pjit_cache_fun_only)
        cache.clear_all()
        traces = self._trace_cache()
        for fun in self._traced_functions():
            if is_users(fun):
                traces(fun)
        self._pjit._infer_params_cached.cache_clear()
        for mapped in list(getattr(self._api(), "_pmap_cache_clears", ())):
            mapped._cache_clear()
        parallel = getattr(self._pxla, "parallel_callable", None)
        if parallel is not None:
            parallel.cache_clear()

    def _api(self) -> Any:
        from jax._src import api

        return api

    def _trace_cache(self) -> Callable[[Any], None]:
        """How to forget the traces of one function: by weak reference from 0.8, by name before."""
        cache = self._cache_of_traces()
        evict = getattr(cache, "evict_weakref", None) or getattr(cache, "evict_function", None)
        if evict is None:
            raise UnsupportedJaxError(self.jax.__version__, ["no way to forget one function's traces"])
        return evict  # type: ignore[no-any-return]

    def _cache_of_traces(self) -> Any:
        return self._pe.trace_to_jaxpr if self.traces_by_log else self._pjit._create_pjit_jaxpr

    def _traced_functions(self) -> list[Any]:
        cache = self._cache_of_traces()
        if hasattr(cache, "cache_keys"):
            refs = {id(key[0]): key[0] for key in cache.cache_keys()}.values()
            return [fun for fun in (ref() for ref in refs) if fun is not None]
        return list(cache.cache_clear.__self__)


def _is_jaxpr(value: Any) -> bool:
    return type(value).__name__ in ("ClosedJaxpr", "Jaxpr")


def _cells(function: Any) -> list[tuple[str, Any]]:
    function = getattr(function, "__wrapped__", function)
    names = function.__code__.co_freevars
    return [(n, c.cell_contents) for n, c in zip(names, function.__closure__ or (), strict=True)]


def _text(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value)
    try:
        text = str(value)
    except Exception:  # a value's own __str__ is the user's; its type still tells it apart
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 200 else text[:197] + "..."


def _library_prefixes() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]]
    folders += [site.getusersitepackages()]
    return tuple(os.path.join(folder, "") for folder in folders)


# Options that change what is said, not what is compiled; we set the first ourselves.
_OUTSIDE_ANY_KEY = frozenset({"jax_explain_cache_misses", "jax_log_compiles"})
# Files of JAX that call a user's function on the user's behalf.
_TRAMPOLINES = (
    "api.py",
    "linear_util.py",
    "api_util.py",
    "batching.py",
    "ad.py",
    "core.py",
    "ad_checkpoint.py",
    "custom_derivatives.py",
    "traceback_util.py",
    "stages.py",
    "tree_util.py",
    "profiler.py",
    "util.py",
)
_OWN_DIRECTORY = os.path.dirname(os.path.abspath(__file__)) + os.sep

_lock = threading.Lock()
_probe: Probe | None = None


def probe() -> Probe:
    """The probe of the JAX that is loaded; loads JAX if it is not."""
    global _probe
    with _lock:
        if _probe is None or sys.modules.get("jax") is not _probe.jax:
            _probe = Probe()
        return _probe
