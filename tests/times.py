"""Where the time of a run went, from the JUnit file that pytest wrote: by folder, and by test.

Run by `make test-times`. Seconds are those of each test with its fixtures; several run at a time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

_NUM_TESTS: Final = 100


def main(file: Path) -> None:
    """Print both tables."""
    cases = list(_cases(file))
    seconds, nums = Counter[str](), Counter[str]()
    for folder, _, duration_s in cases:
        seconds[folder] += duration_s  # type: ignore[assignment]
        nums[folder] += 1
    print("| folder | seconds | cases |\n| --- | --- | --- |")
    for folder, duration_s in seconds.most_common():
        print(f"| {folder} | {duration_s:.0f} | {nums[folder]} |")
    print(f"| all | {seconds.total():.0f} | {nums.total()} |")
    print("\n| seconds | test |\n| --- | --- |")
    for _, name, duration_s in sorted(cases, key=lambda case: -case[2])[:_NUM_TESTS]:
        print(f"| {duration_s:.1f} | {name} |")


def _cases(file: Path) -> Iterator[tuple[str, str, float]]:
    """Folder, name and seconds of each test."""
    for case in ElementTree.parse(file).iter("testcase"):
        module = case.attrib["classname"].removeprefix("tests.")
        folder = module.partition(".")[0]
        yield folder, f"{module}::{case.attrib['name'][:80]}", float(case.attrib["time"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
