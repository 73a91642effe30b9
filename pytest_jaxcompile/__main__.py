"""``python -m pytest_jaxcompile``"""

import sys

from pytest_jaxcompile.cli import main

if __name__ == "__main__":
    sys.exit(main())
