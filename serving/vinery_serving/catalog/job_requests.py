"""What administrators ask of jobs: to begin, pause, go on or end. Each request is audited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vinery_accounts.services import changes
from vinery_serving.catalog.jobs import UNFINISHED, Asked, JobKind, JobState, ModelJob
from vinery_serving.catalog.models import ServedModel

# Ended jobs that are kept of each model. More of them are deleted, the oldest first.
_MAX_ENDED: Final = 50


def begin(model: ServedModel, kind: JobKind, parameters: Mapping[str, Any]) -> ModelJob:
    """Ask the node for a job. Raises ValidationError while one of its kind has not ended."""
    ended = ModelJob.objects.filter(model=model).exclude(state__in=UNFINISHED)
    kept = ended.values_list("pk", flat=True)[:_MAX_ENDED]
    ended.exclude(pk__in=list(kept)).delete()
    return changes.add(ModelJob(model=model, kind=kind, parameters=dict(parameters)))


def pause(job: ModelJob) -> ModelJob:
    return changes.switch(job, "pause", asked=Asked.PAUSE)


def cancel(job: ModelJob) -> ModelJob:
    """End a job for good. What it has made so far is deleted."""
    return changes.switch(job, "cancel", asked=Asked.CANCEL)


def resume(job: ModelJob) -> ModelJob:
    """Go on with a job that is paused, or begin one again that has failed."""
    if job.state in (JobState.FAILED, JobState.CANCELLED):
        return changes.switch(
            job,
            "resume",
            asked=Asked.RUN,
            state=JobState.WAITING,
            num_attempts=0,
            next_attempt_at=None,
            error="",
            ended_at=None,
        )
    return changes.switch(job, "resume", asked=Asked.RUN)
