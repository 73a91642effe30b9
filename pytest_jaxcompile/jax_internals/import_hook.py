"""Waiting for a module to be imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call ``then`` right after the module ``name`` was imported; at once if it already is.

    JAX reads its environment variables while it is imported, and a conftest or a test
    may set them first: so we never import it, and wait. Returns a function that stops waiting.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        then()
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Finder(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in list(sys.meta_path):
            if isinstance(finder, _Finder):  # others that wait, too: they are called below
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._loaded)
                return spec
        return None

    def _loaded(self) -> None:
        waiting = [f for f in sys.meta_path if isinstance(f, _Finder) and f._name == self._name]
        for finder in waiting:
            finder.remove()
        for finder in waiting:
            finder._then()


class _Loader(Loader):
    """The module's own loader, then the callback. Leaves the module as if it had not been here."""

    def __init__(self, loader: Loader, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()
