"""``python -m pytest_jaxcompile``"""

import sys

from pytest_jaxcompile.command_line.commands import main

if __name__ == "__main__":
    sys.exit(main())
