"""Everything that is read from inside JAX, and from nowhere else.

JAX says when it traces, lowers and compiles (``jax.monitoring``), but not which
function, with which arguments, from which line. While such an event fires, the
frames of JAX's own call are on the stack; ``call_frames`` reads them, through the files
and types that this module knows. No attribute of JAX is replaced.

What differs between JAX releases stands here, each with the release and the
reason; ``support_check`` looks whether the installed JAX still is what we read.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

from pytest_jaxcompile.errors import CountUnavailableError, UnsupportedJaxError
from pytest_jaxcompile.jax_internals.call_frames import StackReader
from pytest_jaxcompile.jax_internals.file_origin import JAX, Zones
from pytest_jaxcompile.jax_internals.trace_context import TraceContext

TRACE_EVENT: Final = "/jax/core/compile/jaxpr_trace_duration"
LOWER_EVENT: Final = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE_EVENT: Final = "/jax/core/compile/backend_compile_duration"
DISK_HIT_EVENT: Final = "/jax/compilation_cache/cache_hits"


class Probe:
    """The installed JAX, as far as we read it. Make one with :func:`probe`."""

    def __init__(self) -> None:
        import jax
        import jax.monitoring
        from jax._src import (
            ad_checkpoint,
            api,
            compilation_cache,
            compiler,
            config,
            dispatch,
            monitoring,
            pjit,
            source_info_util,
        )
        from jax._src.interpreters import partial_eval, pxla

        self.jax = jax
        self.version: tuple[int, ...] = jax.__version_info__
        self.monitoring = monitoring
        self._config = config
        self._pjit = pjit
        self._api = api
        self._checkpoint = ad_checkpoint
        self._is_user_filename = source_info_util.is_user_filename
        self._pe = partial_eval
        self._pxla = pxla
        self.directory = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
        self.zone = Zones(self.directory).of
        self._owned: dict[str, frozenset[int]] = {}
        self.jitted_types = self._jitted_types()
        # Until 0.8 a trace event is a trace, nested or not. From 0.9 it also fires for a
        # trace that was cached, and from 0.10 nested traces are silent.
        self.traces_by_log = self.version >= (0, 9)
        self.trace_logger = partial_eval.logger.name if self.traces_by_log else ""
        # Phases announce their start from 0.6; before, their end is logged just before the event.
        self.announces_start = self.version >= (0, 6)
        self.phase_logger = dispatch.logger.name
        # They say at WARNING what they else say at DEBUG, while traces are explained.
        self.louder_loggers = (compiler.logger.name, compilation_cache.logger.name)
        modules = {"pjit": pjit, "pxla": pxla, "dispatch": dispatch, "partial_eval": partial_eval}
        self.sources = {name: str(module.__file__) for name, module in modules.items()}
        reader = StackReader(self, pjit.__file__, pxla.__file__, api.__file__)
        self.read = reader.read
        self.context = TraceContext(config).read

    def missing(self) -> list[str]:
        """What is not there under the name by which it is used, one sentence each."""
        found = [
            f"jax.monitoring keeps no list of {kind} listeners"
            for kind in ("event_duration_secs", "event")
            if not hasattr(self.monitoring, f"_{kind}_listeners")
        ]
        for owner, name in (
            (self.jax.monitoring, "register_event_duration_secs_listener"),
            (self.jax.monitoring, "register_event_listener"),
            (self._pjit, "_cpp_pjit_cache_fun_only"),
            (self._pjit, "_infer_params_cached"),
            (self._pe if self.traces_by_log else self._pjit, self._trace_cache_name),
            (self._checkpoint, "_trace_to_jaxpr"),
            (self._config, "trace_context"),
            (self._config, "explain_cache_misses"),
        ):
            if not hasattr(owner, name):
                found.append(f"{owner.__name__} has no {name}")
        return found

    @property
    def _trace_cache_name(self) -> str:
        return "trace_to_jaxpr" if self.traces_by_log else "_create_pjit_jaxpr"

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
            and "infer_params" in value.__code__.co_freevars
            and self.zone(value.__code__.co_filename) == JAX
        )

    def inner(self, jitted: Any) -> Any:
        """The object that was given to ``jit``."""
        return getattr(jitted, "_fun", None) or jitted.__wrapped__

    def info(self, jitted: Any) -> Any:
        """The options of a jitted function; an attribute from 0.6, a closure before."""
        info = getattr(jitted, "_jit_info", None)
        if info is None and hasattr(jitted, "_cache_miss"):
            info = dict(cells(jitted._cache_miss)).get("jit_info")
        return info

    @staticmethod
    def program_name(module: Any) -> str | None:
        """What a lowered module says whose it is; ``None`` if there is no module."""
        if module is None:
            return None
        name = str(module.operation.attributes["sym_name"]).strip('"')
        return name.removeprefix("jit_").removeprefix("pmap_")

    def live_jitted(self) -> Iterator[Any]:
        """All jitted functions alive, JAX's own included. Walks the heap: for rare paths only."""
        import gc

        # Of the ways to look through some million objects the fastest.
        found = [o for kind in self.jitted_types for o in gc.get_objects() if type(o) is kind]
        # Without a function are those that JAX makes to run one program.
        return (o for o in found if hasattr(o, "_fun") or hasattr(o, "__wrapped__"))

    def owns(self, fun: Any) -> bool:
        """Whether JAX itself jits ``fun``, a function defined inside JAX.

        True if a jitted object of JAX's modules holds it, or if it is a closure
        that a function of JAX made and jitted (as for ``jax.lax`` primitives).
        """
        written = fun.func if isinstance(fun, functools.partial) else fun
        written_in = sys.modules.get(getattr(written, "__globals__", {}).get("__name__", ""))
        shown_in = sys.modules.get(getattr(fun, "__module__", None) or "")
        for module in (written_in, shown_in):
            if module is not None and id(fun) in self._jitted_in(module):
                return True
        if not isinstance(fun, FunctionType) or self.zone(fun.__code__.co_filename) != JAX:
            return False
        # Its code keeps the name that the function was written with; JAX renames the function.
        outer, marker, _ = fun.__code__.co_qualname.partition(".<locals>")
        if not marker:
            return False
        maker: Any = written_in
        for part in outer.split("."):
            maker = getattr(maker, part, None)
        while hasattr(maker, "__wrapped__"):
            maker = maker.__wrapped__
        code = getattr(maker, "__code__", None)
        return code is not None and not {"jit", "pjit"}.isdisjoint(code.co_names)

    def number_of_source(self, source: str) -> int:
        """How many live functions that were jitted have this name and place of JAX's."""
        live = (jitted for jitted in self.live_jitted() if type(jitted) is self.jitted_types[0])
        found = (j for j in live if getattr(self.info(j), "fun_sourceinfo", None) == source)
        return len({id(self.inner(jitted)) for jitted in found})

    def _jitted_under(self, value: Any, depth: int = 4) -> Iterator[Any]:
        """The functions of jitted objects that ``value`` is, wraps, or keeps as a member."""
        if type(value) is self.jitted_types[0]:
            yield self.inner(value)
        if depth == 0:
            return
        members: Any = ()
        if isinstance(value, dict):
            members = value.values()
        elif isinstance(value, type) or type(value).__module__.startswith("jax"):
            members = getattr(value, "__dict__", {}).values()
        elif isinstance(value, FunctionType):
            members = (value.__dict__.get("__wrapped__"),)
        for member in list(members):
            yield from self._jitted_under(member, depth - 1)

    def _jitted_in(self, module: Any) -> frozenset[int]:
        """Ids of the functions that the module's jitted objects hold; modules keep them alive."""
        name = module.__name__
        if name not in self._owned:
            values = list(vars(module).values())
            found = {id(fun) for value in values for fun in self._jitted_under(value)}
            self._owned[name] = frozenset(found)
        return self._owned[name]

    # -- what JAX tells -----------------------------------------------------------

    def subscribers(self, kind: str) -> list[Any]:
        """JAX's live list of listeners of a kind; its public getters (from 0.6) give copies."""
        listeners: list[Any] = getattr(self.monitoring, f"_{kind}_listeners", [])
        return listeners

    def subscribe(self, kind: str, callback: Callable[..., None]) -> None:
        if callback not in self.subscribers(kind):
            getattr(self.jax.monitoring, f"register_{kind}_listener")(callback)

    def unsubscribe(self, kind: str, callback: Callable[..., None]) -> None:
        """Take ``callback`` off the list, in place; JAX's own way raises if it is gone."""
        listeners = self.subscribers(kind)
        if callback in listeners:
            listeners.remove(callback)

    def device_names(self) -> list[str]:
        """Devices of the backends in use; none are started by asking."""
        from jax._src import xla_bridge

        if not xla_bridge.backends_are_initialized():
            return []
        return [f"{d.platform}:{d.id}" for d in self.jax.devices()]

    def logs_traces_of(self, filename: str) -> bool:
        """JAX's own word on whose code a file is; a function without a file is the user's."""
        return not filename or bool(self._is_user_filename(filename))

    @property
    def traces_cached(self) -> tuple[int, int]:
        """From 0.9: how many traces were made, by all threads, and how many are kept."""
        info = self._pe.trace_to_jaxpr.cache_info()
        return info.misses, info.currsize

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
        shared = self._pjit._cpp_pjit_cache_fun_only
        type(shared).clear_all()
        # What jitted objects share outlives them, and serves the next one of the function.
        shared.clear()
        self._pjit._cpp_pjit_cache_explicit_attributes.clear()
        self._forget_in(self._cache_of_traces(), is_users)
        inferred = self._pjit._infer_params_cached
        if hasattr(inferred, "evict_weakref"):  # from 0.9
            self._forget_in(inferred, is_users)
        else:
            inferred.cache_clear()
        if self.version < (0, 5):
            # There, ``clear_all`` does nothing from its second call on.
            for jitted in self.live_jitted():
                if type(jitted) is self.jitted_types[0] and is_users(self.inner(jitted)):
                    self._clear(jitted)
        self._checkpoint._trace_to_jaxpr.cache_clear()
        for mapped in list(getattr(self._api, "_pmap_cache_clears", ())):
            mapped._cache_clear()
        parallel = getattr(self._pxla, "parallel_callable", None)
        if parallel is not None:
            parallel.cache_clear()

    @staticmethod
    def _clear(jitted: Any) -> None:
        jitted._clear_cache()

    def _forget_in(self, cache: Any, is_users: Callable[[Any], bool]) -> None:
        """Forget one function after the other: by weak reference from 0.9, by name before."""
        evict = getattr(cache, "evict_weakref", None) or getattr(cache, "evict_function", None)
        if evict is None:
            raise UnsupportedJaxError(
                self.jax.__version__, ["no way to forget one function's traces"]
            )
        for fun in self._functions_of(cache):
            if is_users(fun):
                evict(fun)

    def _cache_of_traces(self) -> Any:
        return getattr(self._pe if self.traces_by_log else self._pjit, self._trace_cache_name)

    @staticmethod
    def _functions_of(cache: Any) -> list[Any]:
        if hasattr(cache, "cache_keys"):
            refs = {id(key[0]): key[0] for key in cache.cache_keys()}.values()
            return [fun for fun in (ref() for ref in refs) if fun is not None]
        return list(cache.cache_clear.__self__)


def cells(function: Any) -> list[tuple[str, Any]]:
    function = getattr(function, "__wrapped__", function)
    names = function.__code__.co_freevars
    return [(n, c.cell_contents) for n, c in zip(names, function.__closure__ or (), strict=True)]


_lock = threading.RLock()
_probe: Probe | None = None


def probe() -> Probe:
    """The probe of the JAX that is loaded; loads JAX if it is not.

    Raises :class:`CountUnavailableError` if JAX was taken out of ``sys.modules`` since.
    """
    global _probe
    if _probe is None:
        with _lock:
            if _probe is None:
                _probe = Probe()
    if sys.modules.get("jax") is not _probe.jax:
        raise CountUnavailableError(
            "jax is no longer the module that was listened to: it was deleted from sys.modules "
            "or imported a second time"
        )
    return _probe
