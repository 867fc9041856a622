"""Facts about a model for pages and commands: the engine, jobs, trials of other options, and an
example."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vinery_serving.core.tasks import Task
from vinery_serving.models.aliases import ModelAlias
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.job_requests import MEASURABLE
from vinery_serving.models.job_resource import bytes_text, progress_text
from vinery_serving.models.job_rows import Asked, JobState, ModelJob
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS

_RESUMABLE: Final = (JobState.PAUSED, JobState.FAILED, JobState.CANCELLED)
_COMMIT_DIGITS: Final = 12
_PICTURE: Final = [
    {"type": "text", "text": "What is it?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}},
]
_CHAT: Final = "chat/completions"
# The path and the body of a request for each task.
_EXAMPLES: Final[Mapping[Task, tuple[str, Mapping[str, Any]]]] = {
    Task.CHAT: (_CHAT, {"messages": [{"role": "user", "content": "Hello!"}]}),
    Task.VISION: (_CHAT, {"messages": [{"role": "user", "content": _PICTURE}]}),
    Task.COMPLETION: ("completions", {"prompt": "Once upon a time", "max_tokens": 50}),
    Task.EMBEDDINGS: ("embeddings", {"input": ["The sky is blue.", "Grass is green."]}),
    Task.RERANK: (
        "rerank",
        {"query": "What is green?", "documents": ["The sky is blue.", "Grass is green."]},
    ),
}


@dataclass(frozen=True, slots=True)
class JobView:
    job: ModelJob

    @property
    def text(self) -> str:
        return progress_text(self.job)

    @property
    def actions(self) -> list[str]:
        job = self.job
        if job.is_unfinished and job.asked == Asked.CANCEL:
            return []
        is_paused = job.is_unfinished and job.asked == Asked.PAUSE
        pause = ["pause"] if job.is_unfinished and not is_paused else []
        resume = ["resume"] if job.state in _RESUMABLE or is_paused else []
        return [*pause, *resume, *(["cancel"] if job.is_unfinished else [])]

    @property
    def percent(self) -> int | None:
        """The done part of an unfinished job; None: unknown, or ended."""
        if not self.job.is_unfinished or not self.job.total_bytes:
            return None
        return min(100, 100 * self.job.done_bytes // self.job.total_bytes)


def jobs_of(model: ServedModel, num_jobs: int) -> list[JobView]:
    jobs = ModelJob.objects.filter(model=model).select_related("model")[:num_jobs]
    return list(map(JobView, jobs))


def engine_facts(
    body: Mapping[str, Any], attempts: str, *, cache_grows: bool | None
) -> Iterator[tuple[str, str]]:
    """Yield names and texts of facts about an engine. `body` is that of the API, `attempts` the
    text about attempts to load. `cache_grows`: the KV cache has no fixed size; None: there is no
    cache."""
    if body["num_running"] is not None:
        yield "Running requests", str(body["num_running"])
        yield "Waiting requests", str(body["num_waiting"])
    if body["work"] is not None:
        yield from _work_facts(body["work"], cache_grows=cache_grows)
    if body["memory_bytes"] is not None:
        yield "Memory now", bytes_text(body["memory_bytes"])
    # The peak is measured once a minute, without memory that engines share.
    if (body["peak_bytes"] or 0) > (body["memory_bytes"] or 0):
        yield "Memory at most", bytes_text(body["peak_bytes"])
    if body["needed_bytes"] is not None:
        yield "Memory expected", bytes_text(body["needed_bytes"])
    if body["max_context"]:
        yield "Context", f"{body['max_context']:,} tokens"
    if body["num_attempts"]:
        yield "Attempts to load", attempts
    for each in body["replicas"]:
        text = f"{each['state']} on {each['device']}"
        yield f"Replica {each['replica']}", f"{text}. {each['error']}" if each["error"] else text
    if body["num_restarts"]:
        yield "Restarts", str(body["num_restarts"])


def _work_facts(work: Mapping[str, Any], *, cache_grows: bool | None) -> Iterator[tuple[str, str]]:
    yield "Prompt tokens per second", f"{work['prompt_tokens_per_s']:,.1f}"
    yield "Generated tokens per second", f"{work['output_tokens_per_s']:,.1f}"
    for name, title in (("first_token_s", "First token"), ("inter_token_s", "Between tokens")):
        if (wait := work[name]) is not None:
            yield title, f"{1000 * wait['p50']:,.0f} ms, p95 {1000 * wait['p95']:,.0f} ms"
    if cache_grows is not None:
        used = bytes_text(round(work["cache_usage"] * work["cache_bytes"]))
        maximum = (
            "it grows as needed" if cache_grows else f"at most {bytes_text(work['cache_bytes'])}"
        )
        yield "KV cache used", f"{used}; {maximum}"
    if work["prefix_hit_rate"] is not None:
        yield "Prompt tokens from the cache", f"{work['prefix_hit_rate']:.0%}"
    if work["draft_acceptance"] is not None:
        yield "Accepted draft tokens", f"{work['draft_acceptance']:.0%}"


def actions_of(model: ServedModel) -> list[str]:
    if not model.folder:
        return []
    if not model.is_loaded:
        return ["load"]
    retry = ["retry"] if model.status.has_failed else []
    wake = ["load"] if model.shown_state is ShownState.ASLEEP else []
    is_measured = model.shown_state in MEASURABLE and Task(model.task).is_generation
    bench = ["bench"] if is_measured else []
    test = ["self-test"] if model.takes_pictures else []
    return [*retry, *wake, "unload", *test, *bench]


def body_of(model: ServedModel) -> dict[str, Any]:
    """Return a model as the API does, after it was loaded by `MODELS.load`."""
    return dict(MODELS.serializer(model).data)


def source_of(model: ServedModel) -> str:
    """Return where the files of a model were pulled from; empty: an administrator named them."""
    source = model.source
    if "repository" in source:
        return f"{source['repository']} at {source['commit'][:_COMMIT_DIGITS]}"
    return str(source.get("url") or source.get("path") or "")


def aliases_of(model: ServedModel) -> list[ModelAlias]:
    return [alias for alias in ModelAlias.objects.all() if model.name in alias.targets]


def curl_of(model: ServedModel, base_url: str) -> str:
    """Return a command that asks the model, with the key in the variable KEY."""
    path, body = _EXAMPLES[Task(model.task)]
    text = json.dumps({"model": model.name, **body})
    return (
        f"curl {base_url}/v1/{path} \\\n"
        '  -H "Authorization: Bearer $KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{text}'"
    )


def trial_rows(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of trials, in the order of the trials. `result` is that of the job."""
    for trial in result["trials"]:
        gain = trial["gain"]
        yield {
            "trial": trial["what"],
            "gain": trial["error"] if gain is None else f"{gain:.2f}",
            "by_streams": ", ".join(f"{num}: {each:.2f}" for num, each in trial["gains"].items()),
            "same_answers": "-" if gain is None else f"{trial['same_answers']:.0%}",
            "kept": trial["is_kept"],
        }


def is_better(result: Mapping[str, Any]) -> bool:
    """Whether the search has found better options than the first."""
    return bool(result["best"] != result["present"])


def summary(result: Mapping[str, Any]) -> str:
    """Return one line about the best options, and about time that was too short."""
    best, genai = result["best_gain"], result["genai_gain"]
    text = "No trial was clearly faster than the present options."
    if is_better(result):
        options = json.dumps(result["best"])
        text = f"The best options are {best:.2f} times as fast as the present ones: {options}."
    if genai:
        text += f" They are {best / genai:.2f} times as fast as OpenVINO GenAI's defaults."
    if not result["is_complete"]:
        text += " The time ended before all settings were tried."
    return text
