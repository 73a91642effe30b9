"""Whose a file is: JAX's, a library's, ours or the user's."""

from __future__ import annotations

import os
import site
import sysconfig

JAX, LIBRARY, OURS, USER = range(4)


class Zones:
    """Files told apart by where they are, each looked at once."""

    def __init__(self, jax_directory: str) -> None:
        self._jax_directory = jax_directory
        self._library_prefixes = _library_prefixes()
        self._known: dict[str, int] = {}

    def of(self, filename: str) -> int:
        zone = self._known.get(filename)
        if zone is None:
            zone = self._known[filename] = self._find(filename)
        return zone

    def _find(self, filename: str) -> int:
        if filename.startswith(self._jax_directory) and "example_libraries" not in filename:
            return JAX
        if filename.startswith(_OWN_DIRECTORY):
            return OURS
        if filename.startswith(self._library_prefixes):
            return LIBRARY
        return LIBRARY if any(folder in filename for folder in _INSTALLED) else USER


_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))


def _library_prefixes() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]]
    folders += [site.getusersitepackages()]
    return (*(os.path.join(folder, "") for folder in folders), "<frozen")


_OWN_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
