"""The kinds of jobs: the functions that carry them out, imported in the process of a job alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from vinery_serving.jobs.progress import JobDocument, Reporter

# Returns the result. Raises JobFailed.
Run = Callable[[JobDocument, Reporter], Mapping[str, Any]]
Discard = Callable[[JobDocument], None]

# Modules with `run` and, if the job leaves unfinished files, `discard`.
MODULES: Final[Mapping[str, str]] = {
    "pull": "vinery_serving.hub.pull_job",
    "convert": "vinery_serving.convert.job",
    "bench": "vinery_serving.speed.bench_job",
    "tune": "vinery_serving.speed.tune_job",
}


def run_of(kind: str) -> Run:
    """Return the function that carries out a job. Raises KeyError for a kind that is unknown."""
    run: Run = import_module(MODULES[kind]).run
    return run


def discard_of(kind: str) -> Discard | None:
    """Return the function that deletes what an unfinished job has made; None: it makes nothing."""
    discard: Discard | None = getattr(import_module(MODULES[kind]), "discard", None)
    return discard
