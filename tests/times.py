"""Where the time of a run went, from the JUnit file that pytest wrote: by folder, and by test.

Run by `make test-times`. Seconds include the fixtures of a test; several tests run at a time.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

_NUM_TESTS: Final = 100


def main(file: Path) -> None:
    """Write both tables."""
    cases = list(_cases(file))
    seconds: defaultdict[str, float] = defaultdict(float)
    nums = Counter(folder for folder, _, _ in cases)
    for folder, _, duration_s in cases:
        seconds[folder] += duration_s
    folders = sorted(seconds, key=lambda folder: -seconds[folder])
    lines = [
        *("| folder | seconds | cases |", "| --- | --- | --- |"),
        *(f"| {folder} | {seconds[folder]:.0f} | {nums[folder]} |" for folder in folders),
        f"| all | {sum(seconds.values()):.0f} | {nums.total()} |",
        *("", "| seconds | test |", "| --- | --- |"),
    ]
    slowest = sorted(cases, key=lambda case: -case[2])[:_NUM_TESTS]
    lines += [f"| {duration_s:.1f} | {name} |" for _, name, duration_s in slowest]
    sys.stdout.write("\n".join(lines) + "\n")


def _cases(file: Path) -> Iterator[tuple[str, str, float]]:
    """Folder, name and seconds of each test."""
    for case in ElementTree.parse(file).iter("testcase"):
        module = case.attrib["classname"].removeprefix("tests.")
        folder = module.partition(".")[0]
        yield folder, f"{module}::{case.attrib['name'][:80]}", float(case.attrib["time"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
