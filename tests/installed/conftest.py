"""These tests need a wheel: `make test-wheel` builds one and names it."""

import os

collect_ignore = [] if os.environ.get("VINERY_TEST_WHEEL") else ["test_wheel.py"]
