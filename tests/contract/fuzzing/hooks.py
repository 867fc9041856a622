"""Which wrong requests are sent. Schemathesis loads this file.

The statuses are counted and written for the test.
"""

import atexit
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import schemathesis
from schemathesis.generation.meta import TestPhase

LARGEST_BODY = 50_000  # values
LONG_ARRAY = 1_000
ONE_OF = int(os.environ.get("VINERY_TEST_ONE_OF", "1"))

tally: Counter[tuple[str, str, int]] = Counter()


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Drop a body of many megabytes, such as an array at its bound with entries at their bounds. Of
    a sample, keep one body in `ONE_OF`, by the checksum."""
    is_bound = bool(case.meta) and case.meta.phase.name is TestPhase.COVERAGE
    if is_bound and ONE_OF > 1 and crc32(repr(case.body).encode()) % ONE_OF:
        return False
    if is_huge(case.body):
        return False
    case.body = with_short_entries(case.body)
    return True


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    if case.meta:
        mode = case.meta.generation.mode.value
        tally[case.path, mode, response.status_code] += 1


@atexit.register
def write_tally() -> None:
    """Write the counts for the test that started this process."""
    rows = [[*key, count] for key, count in sorted(tally.items())]
    Path(os.environ["VINERY_TEST_TALLY"]).write_text(json.dumps(rows), encoding="utf-8")


def is_huge(body: Any) -> bool:
    """Whether the body has more values than all limits of one field allow."""
    nodes = [body]
    for node in nodes:
        if isinstance(node, dict | list):
            nodes += node.values() if isinstance(node, dict) else node
        if len(nodes) > LARGEST_BODY:
            return True
    return False


def with_short_entries(value: Any) -> Any:
    """Shorten the texts in an array at its bound, which together are many megabytes. Other cases
    test the bound of each text."""
    if isinstance(value, dict):
        return {key: with_short_entries(each) for key, each in value.items()}
    if isinstance(value, list) and len(value) >= LONG_ARRAY:
        return [each[:9] if isinstance(each, str) else each for each in value]
    return value
