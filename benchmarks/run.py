"""All benchmarks, one table: ``python benchmarks/run.py [--smallest]``, in less than ten minutes.

Needs the package and its peers: ``pip install -e . chex equinox jinja2``. Each ``bench_*.py``
also runs alone. No time is asserted: the table says what was met, and how sure that is.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from measure import HEADER, machine


def main() -> int:
    print(f"{machine()}\n")
    print("| " + " | ".join(HEADER) + " |\n" + "| --- " * len(HEADER) + "|", flush=True)
    start, failed = time.perf_counter(), 0
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        begin = time.perf_counter()
        # A process each: what one compiled is in the caches of none of the others.
        command = [sys.executable, path, *sys.argv[1:]]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("| ") and not line.startswith(("| what |", "| ---")):
                print(line, end="", flush=True)
        failed += process.wait() != 0
        print(f"{path.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    print(f"\nAll in {time.perf_counter() - start:.0f} s. {machine()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
