"""What the stack says while JAX fires an event.

The frames of JAX's own call are on the stack then, with the very objects that the
call holds. They are read from the event outwards to the user's line, and let go.
"""

from __future__ import annotations

import os
import site
import sysconfig
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pytest_jaxcompile.probe import Probe

JAX, LIBRARY, OURS, USER = range(4)

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

    __slots__ = (
        "ahead_of_time",
        "args",
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
        "lowered",
        "name",
        "operands",
        "params",
        "pmap",
        "related",
        "static_numbers",
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
        self.static_numbers: tuple[int, ...] = ()
        """The positions of a pmap's static arguments."""
        self.caller_is_jax = False
        self.called_from: str | None = None


def is_of_call(frame: FrameType | None) -> bool:
    """Whether the trace that JAX logs is a jitted function's: it also logs those of loop bodies."""
    while frame is not None and frame.f_code.co_name != "explain":
        frame = frame.f_back
    caller = frame.f_back if frame is not None else None
    return caller is not None and caller.f_code.co_name in TRACE_FRAMES


_READ: Final = (
    CALL_FRAMES
    | TRACE_FRAMES
    | PROGRAM_FRAMES
    | frozenset(_TRANSFORMS)
    | {"__exit__", "_python_pjit_helper", "_cached_compilation", "_cached_lowering_to_hlo"}
)
"""Frames that tell something; most tell nothing."""


def jaxpr_of(value: Any) -> Any:
    """The ``Jaxpr`` of a ``ClosedJaxpr``, one object per trace; JAX 0.12 has only the former."""
    return getattr(value, "jaxpr", value)


class StackReader:
    """Reads calls of one installed JAX."""

    def __init__(self, p: Probe, pjit_file: str, pxla_file: str, api_file: str) -> None:
        self._probe = p
        self._pjit_file = pjit_file
        self._pxla_file = pxla_file
        self._api_file = api_file
        self._zones: dict[str, int] = {}
        self._library_prefixes = _library_prefixes()

    def zone(self, filename: str) -> int:
        zone = self._zones.get(filename)
        if zone is None:
            if filename.startswith(self._probe.directory) and "example_libraries" not in filename:
                zone = JAX
            elif filename.startswith(_OWN_DIRECTORY):
                zone = OURS
            elif filename.startswith(self._library_prefixes) or any(
                folder in filename for folder in _INSTALLED
            ):
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
        if stack.fun is None and stack.operands is not None and not stack.transforms:
            stack.transforms.append("evaluation")  # a jaxpr run by itself, not by a call
        stack.called_from = stack.called_from or generated
        return stack

    def _read_jax_frame(self, stack: Stack, frame: FrameType, code: CodeType, traced: bool) -> bool:
        """Take what one frame of JAX tells; True once the call itself is known."""
        name = code.co_name
        if name not in _READ and not code.co_filename.endswith("ad_checkpoint.py"):
            return False
        if name == "__exit__":
            stack.finished = frame.f_locals.get("exc_type") is None
        elif name in PROGRAM_FRAMES and code.co_filename == self._pjit_file:
            local = frame.f_locals
            stack.jaxpr = local.get("jaxpr")
            stack.name = local.get("name")
            stack.operands = local.get("args")
        elif name == "_python_pjit_helper":  # until 0.8; later in ``cache_miss``
            stack.params = frame.f_locals.get("p")
        elif name in _TRANSFORMS and code.co_filename == self._pjit_file:
            stack.transforms.append(_TRANSFORMS[name])
            stack.related += [v for v in frame.f_locals.values() if _is_jaxpr(v)]
        elif name in TRACE_FRAMES and code.co_filename == self._pjit_file:
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
        elif code.co_filename.endswith("ad_checkpoint.py"):
            if "checkpoint" not in stack.transforms:
                stack.transforms.append("checkpoint")
        elif name in CALL_FRAMES:
            return self._read_call(stack, frame.f_locals, name, code.co_filename)
        return False

    def _read_call(self, stack: Stack, local: dict[str, Any], name: str, filename: str) -> bool:
        if name == "cache_miss" and filename == self._api_file:
            stack.pmap = True
        elif filename != self._pjit_file:
            return False
        jitted = local.get("jit_func")
        if jitted is not None:
            stack.fun = self._probe.inner(jitted)
        elif stack.pmap:  # until 0.7
            stack.fun = getattr(getattr(local.get("p"), "flat_fun", None), "f", None)
            prepare = local.get("prepare_pmap_fn")
            if prepare is not None:
                stack.wrappers.append(prepare)
                stack.static_numbers = prepare.args[3]
            else:
                stack.static_numbers = local.get("static_broadcasted_tuple", ())
        else:
            stack.fun = local.get("fun")
        stack.info = (
            self._probe.info(jitted)
            if jitted is not None
            else local.get("jit_info", local.get("ji"))
        )
        stack.args = local.get("args")
        stack.kwargs = local.get("kwargs") or {}
        stack.ahead_of_time = name not in ("cache_miss", "_infer_params")
        if stack.params is None:
            stack.params = local.get("p")
        if stack.entry is None:
            stack.entry = local.get("entry")
        return stack.fun is not None

    def _read_caller(self, stack: Stack, frame: FrameType, code: CodeType) -> None:
        name = code.co_name
        if name in CALL_FRAMES:
            # Ahead of time nothing is called: no later event will show this call.
            stack.ahead_of_time |= name != "cache_miss"
            return
        if name == "reraise_with_filtered_traceback":
            return
        if name in ("_infer_params_internal", "_python_pjit_helper", "_run_python_pjit"):
            return
        if name == "wrapped" and "infer_params" in code.co_freevars:
            infer = frame.f_locals["infer_params"]
            held = {
                name: cell.cell_contents
                for name, cell in zip(
                    infer.__code__.co_freevars, infer.__closure__ or (), strict=True
                )
            }
            stack.pmap = True
            mapped = held["wrapped_fun"].f if "wrapped_fun" in held else held["f"]  # 0.8
            stack.wrappers += [infer, mapped]
            stack.static_numbers = held["static_broadcasted_tuple"]
            stack.args, stack.kwargs = frame.f_locals["args"], frame.f_locals["kwargs"]
        elif not stack.wrappers and not code.co_filename.endswith(_TRAMPOLINES):
            stack.caller_is_jax = True

    def _read_library_frame(self, stack: Stack, frame: FrameType, code: CodeType) -> None:
        if code.co_argcount and len(stack.wrappers) < 4:
            first = frame.f_locals.get(code.co_varnames[0])
            if callable(first) and not isinstance(first, type):
                stack.wrappers.append(first)


def _is_jaxpr(value: Any) -> bool:
    return type(value).__name__ in ("ClosedJaxpr", "Jaxpr")


_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))


def _library_prefixes() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]]
    folders += [site.getusersitepackages()]
    return (*(os.path.join(folder, "") for folder in folders), "<frozen")


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
