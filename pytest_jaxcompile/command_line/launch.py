"""Running a program as ``python`` would, in this process."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from importlib.util import find_spec
from types import CodeType, ModuleType, TracebackType
from typing import Any, Final, NamedTuple

_OWN_FOLDER: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
INTERRUPTED: Final = 130
"""Exit code of a program that Ctrl-C ended, as a shell gives it."""


class NoProgramError(Exception):
    """There is nothing to run; ``code`` is the exit code that ``python`` ends with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(f"{sys.executable}: {message}")
        self.code = code


class Program(NamedTuple):
    """Code, and the attributes of the ``__main__`` that it runs in."""

    code: CodeType
    name: str
    """``sys.argv[0]``"""
    attributes: dict[str, Any]


def run(find: Callable[[], Program], args: Sequence[str]) -> int:
    """Find a program and run it as ``__main__``; its exit code, unless it raises ``SystemExit``.

    An exception is shown as ``python`` shows it, without frames of ours.
    """
    try:
        program = find()
        sys.argv[:] = [program.name, *args]
        main = ModuleType("__main__")
        main.__dict__.update(program.attributes, __builtins__=builtins)
        if sys.version_info < (3, 14):
            main.__annotations__ = {}
        sys.modules["__main__"] = main
        exec(program.code, main.__dict__)
    except (SystemExit, NoProgramError):
        raise
    except BaseException as error:
        traceback = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def script(path: str) -> Program:
    """A source or bytecode file, or a folder or archive with a ``__main__``."""
    absolute = os.path.abspath(path)
    spec = PathFinder.find_spec("__main__", [absolute])
    if spec is not None:
        _prepend(absolute)
        return _of_spec(spec, path)
    try:
        with open(absolute, "rb") as file:
            source = file.read()
    except IsADirectoryError:
        raise NoProgramError(f"can't find '__main__' module in {absolute!r}", 1) from None
    except OSError as error:
        problem = f"[Errno {error.errno}] {error.strerror}"
        raise NoProgramError(f"can't open file {absolute!r}: {problem}", 2) from None
    _prepend(os.path.dirname(os.path.realpath(absolute)))
    loader: SourceFileLoader | SourcelessFileLoader
    if absolute.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", absolute)
        code = loader.get_code("__main__")
    else:
        loader = SourceFileLoader("__main__", absolute)
        code = compile(source, absolute, "exec", dont_inherit=True)
    assert code is not None
    attributes = {"__file__": absolute, "__cached__": None, "__loader__": loader}
    return Program(code, path, attributes)


def module(name: str) -> Program:
    """What ``python -m name`` runs. Imports the packages around it."""
    sys.argv[0] = "-m"
    _prepend(os.getcwd())
    spec = _spec(name)
    if spec.submodule_search_locations is not None:
        try:
            spec = _spec(f"{name}.__main__")
        except NoProgramError as error:
            package = f"{name!r} is a package and cannot be directly executed"
            text = f"No module named {name}.__main__; {package}"
            raise NoProgramError(text, error.code) from None
    return _of_spec(spec, spec.origin or name)


def _spec(name: str) -> ModuleSpec:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError as error:
        # A package around it may lack a module of its own: that is an error to see in full.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    except ValueError:
        spec = None
    if spec is None:
        raise NoProgramError(f"No module named {name}", 1)
    return spec


def _of_spec(spec: ModuleSpec, name: str) -> Program:
    code = getattr(spec.loader, "get_code", lambda _: None)(spec.name)
    if code is None:
        raise NoProgramError(f"No code object available for {spec.name}", 1)
    attributes = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
    }
    return Program(code, name, attributes)


def _prepend(folder: str) -> None:
    """Put ``folder`` where ``python -m pytest_jaxcompile`` put the current one."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    while traceback and traceback.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        traceback = traceback.tb_next
    return traceback
