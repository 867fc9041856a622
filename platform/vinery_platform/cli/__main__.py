"""`python -m vinery_platform.cli`: the same as `vinery`."""

import sys

from vinery_platform.cli import main

if __name__ == "__main__":
    sys.exit(main())
