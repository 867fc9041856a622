"""The real exporter is tested in an environment: `make test-convert` makes one and names it."""

import os

_has_environment = os.environ.get("VINERY_TEST_CONVERT_ENVIRONMENT")
collect_ignore = [] if _has_environment else ["test_real_conversion.py"]
