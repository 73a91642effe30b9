"""What the stack says while JAX fires an event.

The frames of JAX's own call are on the stack then, with the very objects that the
call holds. They are read from the event outwards to the user's line, and let go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_jaxcompile.jax_internals.file_origin import JAX, LIBRARY, USER

if TYPE_CHECKING:
    from pytest_jaxcompile.jax_internals.probe import Probe

CALL_FRAMES: Final = frozenset(
    {"cache_miss", "_infer_params", "jit_lower", "jit_trace", "lower", "trace"}
)
TRACE_FRAMES: Final = frozenset({"_trace_for_jit", "_create_pjit_jaxpr"})
PROGRAM_FRAMES: Final = frozenset({"_pjit_call_impl_python", "_resolve_and_lower"})
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

    # Defaults of the class: most events tell few of these, and reading must cost little.
    traced = False
    """Whether the event is a trace's own."""
    fun: Any = None
    """The very object given to ``jit``."""
    info: Any = None
    """JAX's ``PjitInfo``: the options given to ``jit``."""
    options: tuple[tuple[str, str], ...] | None = None
    """As text, once somebody asked: see ``identity.options_of``."""
    args: tuple[Any, ...] | None = None
    kwargs: Mapping[str, Any] = MappingProxyType({})
    params: Any = None
    """JAX's ``PjitParams`` of the call, once traced."""
    entry: Any = None
    """JAX's cache entry that a completed trace fills."""
    jaxpr: Any = None
    name: str | None = None
    """What JAX calls the program: the function's own name."""
    operands: Any = None
    """The arrays, or stand-ins, that the compiled program takes."""
    computation: Any = None
    devices: Any = None
    compiler_options: tuple[tuple[str, Any], ...] = ()
    lowered: Any = None
    """The StableHLO module, once lowered."""
    ahead_of_time = False
    finished = True
    transforms: tuple[str, ...] = ()
    """Innermost first."""
    related: tuple[Any, ...] = ()
    """Jaxprs derived from one call by a transformation."""
    wrappers: tuple[Any, ...] = ()
    """Callables through which a library or JAX made the call, innermost first."""
    pmap = False
    static_numbers: tuple[int, ...] = ()
    """The positions of a pmap's static arguments."""
    jitted_by_jax = False
    """Whether a function of JAX that jits made the call."""
    called_from: str | None = None


def is_of_call(frame: FrameType | None) -> bool:
    """Whether the trace that JAX logs is a jitted function's: it also logs those of loop bodies."""
    while frame is not None and frame.f_code.co_name != "explain":
        frame = frame.f_back
    caller = frame.f_back if frame is not None else None
    return caller is not None and caller.f_code.co_name in TRACE_FRAMES


def jaxpr_of(value: Any) -> Any:
    """The ``Jaxpr`` of a ``ClosedJaxpr``, one object per trace; JAX 0.12 has only the former."""
    return getattr(value, "jaxpr", value)


_NEAR: Final = 16
"""Frames of libraries in which an object that jits is looked for: those of a test runner, further
out, are many and hold none."""

_Step: TypeAlias = "Callable[[Stack, FrameType], bool | None] | None"
"""What a frame tells; true once the call itself is known. ``None`` if it tells nothing."""


class StackReader:
    """Reads calls of one installed JAX."""

    def __init__(self, p: Probe, pjit_file: str, pxla_file: str, api_file: str) -> None:
        self._probe = p
        self._zone = p.zone
        self._pjit_file = pjit_file
        self._pxla_file = pxla_file
        self._api_file = api_file
        self._steps: dict[int, tuple[CodeType, _Step, _Step]] = {}
        """For the frames of each code of JAX: what to do until the call is found, and after.

        By the id of the code, whose own hash is dear; kept with it, so that it stays its id."""

    def read(self, frame: FrameType | None, traced: bool = False) -> Stack:
        """Read the call that is on the stack, from the event outwards to the user's line.

        ``traced`` tells that the event is a trace's own: else a trace frame means
        that the calls further out belong to another function.
        """
        stack = Stack()
        if traced:
            stack.traced = True
        found = False
        near = _NEAR
        generated: str | None = None
        steps = self._steps
        while frame is not None:
            code = frame.f_code
            known = steps.get(id(code))
            if known is None:
                zone = self._zone(code.co_filename)
                if zone == JAX:
                    known = self._learn(code)
                elif zone == USER:
                    line = f"{code.co_filename}:{frame.f_lineno}"
                    if not code.co_filename.startswith("<"):
                        stack.called_from = line
                        break
                    generated = generated or line
                    found = True
                elif zone == LIBRARY and stack.fun is not None and near:
                    near -= 1
                    self._read_library_frame(stack, frame, code)
            if known is not None:
                step = known[2] if found else known[1]
                if step is not None and step(stack, frame):
                    found = True
            frame = frame.f_back
        if stack.fun is None and stack.operands is not None and not stack.transforms:
            stack.transforms = ("evaluation",)  # a jaxpr run by itself, not by a call
        stack.called_from = stack.called_from or generated
        return stack

    def _learn(self, code: CodeType) -> tuple[CodeType, _Step, _Step]:
        found = (code, self._step_until_call(code), self._step_after_call(code))
        self._steps[id(code)] = found
        return found

    def _step_until_call(self, code: CodeType) -> _Step:
        name, file = code.co_name, code.co_filename
        if name == "__exit__":
            return _read_end
        if name in PROGRAM_FRAMES and file == self._pjit_file:
            return _read_program
        if name == "_python_pjit_helper":  # until 0.8; later in ``cache_miss``
            return _read_params
        if name in _TRANSFORMS and file == self._pjit_file:
            return _read_transform
        if name in TRACE_FRAMES and file == self._pjit_file:
            return _read_trace
        if name == "_cached_compilation" and file == self._pxla_file:
            return _read_compilation
        if name == "_cached_lowering_to_hlo" and file == self._pxla_file:
            return _read_lowering
        if file.endswith("ad_checkpoint.py"):
            return _read_checkpoint
        if name == "cache_miss" and file == self._api_file:
            return self._read_pmap
        if name in CALL_FRAMES and file == self._pjit_file:
            return self._read_call
        return None

    def _step_after_call(self, code: CodeType) -> _Step:
        name = code.co_name
        if name in CALL_FRAMES:
            # Ahead of time nothing is called: no later event will show this call.
            return None if name == "cache_miss" else _read_ahead_of_time
        if name in _BETWEEN:
            return None
        if name == "wrapped" and "infer_params" in code.co_freevars:
            return _read_mapped
        # A function of JAX that jits what it calls, rather than calling what a user has jitted.
        return None if _JITS.isdisjoint(code.co_names) else _read_jitting_caller

    def _read_pmap(self, stack: Stack, frame: FrameType) -> bool:
        stack.pmap = True
        return self._read_call(stack, frame)

    def _read_call(self, stack: Stack, frame: FrameType) -> bool:
        local, name = frame.f_locals, frame.f_code.co_name
        jitted = local.get("jit_func")
        if jitted is not None:
            stack.fun = self._probe.inner(jitted)
            stack.info = self._probe.info(jitted)
        else:
            stack.info = local.get("jit_info", local.get("ji"))
            if not stack.pmap:
                stack.fun = local.get("fun")
            else:  # until 0.7
                stack.fun = getattr(getattr(local.get("p"), "flat_fun", None), "f", None)
                prepare = local.get("prepare_pmap_fn")
                if prepare is not None:
                    stack.wrappers += (prepare,)
                    stack.static_numbers = prepare.args[3]
                else:
                    stack.static_numbers = local.get("static_broadcasted_tuple", ())
        stack.args = local.get("args")
        stack.kwargs = local.get("kwargs") or {}
        stack.ahead_of_time = name not in ("cache_miss", "_infer_params")
        if stack.params is None:
            stack.params = local.get("p")
        if stack.entry is None:
            stack.entry = local.get("entry")
        return stack.fun is not None

    def _read_library_frame(self, stack: Stack, frame: FrameType, code: CodeType) -> None:
        if code.co_argcount and len(stack.wrappers) < 4:
            local = frame.f_locals
            first = local.get(code.co_varnames[0])
            if sys.version_info < (3, 13):
                # There it is a copy that the frame keeps, and with it what a loop has let go.
                local.clear()
            if callable(first) and not isinstance(first, type):
                stack.wrappers += (first,)


# -- until the call is found ----------------------------------------------------------


def _read_end(stack: Stack, frame: FrameType) -> None:
    stack.finished = frame.f_locals.get("exc_type") is None


def _read_program(stack: Stack, frame: FrameType) -> None:
    local = frame.f_locals
    stack.jaxpr = local.get("jaxpr")
    stack.name = local.get("name")
    stack.operands = local.get("args")


def _read_params(stack: Stack, frame: FrameType) -> None:
    stack.params = frame.f_locals.get("p")


def _read_transform(stack: Stack, frame: FrameType) -> None:
    stack.transforms += (_TRANSFORMS[frame.f_code.co_name],)
    stack.related += tuple(v for v in frame.f_locals.values() if _is_jaxpr(v))


def _read_trace(stack: Stack, frame: FrameType) -> bool | None:
    if not stack.traced:
        return True
    stack.jaxpr = stack.jaxpr or frame.f_locals.get("jaxpr")
    return None


def _read_compilation(stack: Stack, frame: FrameType) -> None:
    local = frame.f_locals
    stack.computation = local.get("computation")
    stack.devices = local.get("da")
    stack.compiler_options = local.get("compiler_options_kvs") or ()


def _read_lowering(stack: Stack, frame: FrameType) -> None:
    stack.lowered = getattr(frame.f_locals.get("lowering_result"), "module", None)


def _read_checkpoint(stack: Stack, _: FrameType) -> None:
    if "checkpoint" not in stack.transforms:
        stack.transforms += ("checkpoint",)


# -- between the call and the user's line ---------------------------------------------

_BETWEEN: Final = frozenset(
    {
        "reraise_with_filtered_traceback",
        "_infer_params_internal",
        "_python_pjit_helper",
        "_run_python_pjit",
    }
)


def _read_ahead_of_time(stack: Stack, _: FrameType) -> None:
    stack.ahead_of_time = True


def _read_mapped(stack: Stack, frame: FrameType) -> None:
    infer = frame.f_locals["infer_params"]
    held = {
        name: cell.cell_contents
        for name, cell in zip(infer.__code__.co_freevars, infer.__closure__ or (), strict=True)
    }
    stack.pmap = True
    mapped = held["wrapped_fun"].f if "wrapped_fun" in held else held["f"]  # 0.8
    stack.wrappers += (infer, mapped)
    stack.static_numbers = held["static_broadcasted_tuple"]
    stack.args, stack.kwargs = frame.f_locals["args"], frame.f_locals["kwargs"]


_JITS: Final = frozenset({"jit", "pjit"})


def _read_jitting_caller(stack: Stack, _: FrameType) -> None:
    if not stack.wrappers:
        stack.jitted_by_jax = True


def _is_jaxpr(value: Any) -> bool:
    return type(value).__name__ in ("ClosedJaxpr", "Jaxpr")
