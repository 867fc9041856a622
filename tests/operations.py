"""Counts the work of Python code, so that a test can check how it grows. Time is not measured."""

import cProfile
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import vinery_serving

_CODE = str(Path(vinery_serving.__file__).parent)


def operations(work: Callable[[], Any]) -> int:
    """Return how many lines of `serving` run in `work`, each time that they run. An exception of
    `work` is raised."""
    num_lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal num_lines
        if not frame.f_code.co_filename.startswith(_CODE):
            return None
        num_lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return num_lines


def calls(work: Callable[[], Any]) -> int:
    """Return how many functions `work` calls, those written in C included. That is much faster
    than counting lines. An exception of `work` is raised."""
    with cProfile.Profile(subcalls=False) as profile:
        work()
    return sum(entry.callcount for entry in profile.getstats())


def growth(work: Callable[[int], Callable[[], Any]], size: int) -> float:
    """Return by which factor the work grows when `size` doubles: 2 is linear, 4 is quadratic.
    `work` prepares the input of a size, and returns what is to be measured."""
    return operations(work(2 * size)) / operations(work(size))
