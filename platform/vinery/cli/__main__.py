"""`python -m vinery.cli`: the same as `vinery`."""

import sys

from vinery.cli import main

if __name__ == "__main__":
    sys.exit(main())  # type: ignore[no-untyped-call]
