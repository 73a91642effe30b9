"""Runs mypy and pyright over the files beside this one. Not a test: the checkers see the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CHECKERS = (["mypy", "--strict", "--no-error-summary"], ["pyright"])


def reported(checker: list[str], file: Path) -> set[int]:
    """The lines of ``file`` at which the checker finds an error."""
    done = subprocess.run([*checker, str(file)], capture_output=True, text=True, check=False)
    pattern = rf"{re.escape(file.name)}:(\d+).*error"
    return {int(line) for line in re.findall(pattern, done.stdout)}


def main() -> int:
    wrong = 0
    for name in ("legal.py", "rejected.py"):
        file = HERE / name
        lines = enumerate(file.read_text().splitlines(), 1)
        expected = {number for number, line in lines if line.endswith("# rejected")}
        for checker in CHECKERS:
            found = reported(checker, file)
            if found != expected:
                wrong += 1
                print(f"{checker[0]} {name}: errors at {sorted(found)}, not {sorted(expected)}")
    if not wrong:
        print("mypy and pyright agree with legal.py and rejected.py")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
