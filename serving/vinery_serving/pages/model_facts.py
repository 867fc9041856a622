"""Facts about a model for pages: the engine, and what can be done."""

from collections.abc import Iterator, Mapping
from typing import Any

from vinery_serving.core.tasks import Task
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.job_requests import MEASURABLE
from vinery_serving.models.job_rows import bytes_text
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS


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
    now, peak = body["memory_bytes"] or 0, body["peak_bytes"] or 0
    # The peak is measured once a minute, without memory that engines share.
    sizes = (("now", now), ("at most", peak > now and peak), ("expected", body["needed_bytes"]))
    yield from ((f"Memory {name}", bytes_text(each)) for name, each in sizes if each)
    if body["max_context"]:
        yield "Context", f"{body['max_context']:,} tokens"
    if body["num_attempts"]:
        yield "Attempts to load", attempts
    for each in body["replicas"]:
        where = f"{each['device']} of {host}" if (host := each.get("host")) else each["device"]
        text = f"{each['state']} on {where}"
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
        size = bytes_text(work["cache_bytes"])
        maximum = "it grows as needed" if cache_grows else f"at most {size}"
        yield "KV cache used", f"{used}; {maximum}"
    if work["prefix_hit_rate"] is not None:
        yield "Prompt tokens from the cache", f"{work['prefix_hit_rate']:.0%}"
    if work["draft_acceptance"] is not None:
        yield "Accepted draft tokens", f"{work['draft_acceptance']:.0%}"
    if (loss := work["draft_loss"]) is not None:
        yield "Tokens proposed ahead", f"none just now: answers were slower by {loss:.0%} with them"


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
