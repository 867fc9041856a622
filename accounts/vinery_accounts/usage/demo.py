"""Made-up usage for trials, tests and benchmarks, and its exact removal."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from django.db import transaction
from django.db.models import Exists, OuterRef

from vinery_accounts.base.errors import QUOTA_EXCEEDED
from vinery_accounts.models import RefusedRequest, Rollup, SpanRollup, UsageRecord, UsageSlice
from vinery_accounts.usage import rollups
from vinery_accounts.usage.entries import Admission, Outcome, Settlement
from vinery_accounts.usage.rollups import DAY_S, LEVELS, MINUTE_S, RollupDimensions
from vinery_accounts.usage.verify import tallies_in

Integers = npt.NDArray[np.int64]

PREFIX: Final = "demo-"  # how names of made-up models and users begin

_CHAT, _EMBEDDINGS, _VISION = "chat/completions", "embeddings", f"{PREFIX}vision-7b"
# The endpoint of each model, and the usual milliseconds for a token.
_MODELS: Final = {
    f"{PREFIX}8b": (_CHAT, 22.0),
    f"{PREFIX}1b": (_CHAT, 6.0),
    _VISION: (_CHAT, 30.0),
    f"{PREFIX}coder-30b": ("responses", 35.0),
    f"{PREFIX}embed": (_EMBEDDINGS, 0.0),
}
_LARGE: Final = {"uncached": 0.2, "cached": 0.02, "output": 0.6, "image": 0.4}
PRICES: Final = {
    f"{PREFIX}8b": _LARGE,
    f"{PREFIX}1b": {"uncached": 0.05, "cached": 0.005, "output": 0.1, "image": 0.0},
    _VISION: _LARGE,
    f"{PREFIX}coder-30b": {"uncached": 0.4, "cached": 0.04, "output": 1.6, "image": 0.0},
    f"{PREFIX}embed": {"uncached": 0.02, "cached": 0.02, "output": 0.0, "image": 0.0},
}
"""The columns of `ModelWeight` of each model that is made up."""
_PARAMETERS: Final = '{{"max_tokens":1024,"messages":{},"temperature":0.7}}'
_ERROR: Final = ("error_code", "error_message", "error_param")
_EXHAUSTED: Final = (Outcome.REJECTED, 429, "insufficient_quota", "The budget is used up.", "")
# The outcome, status, error code, message and field of some of a thousand requests.
_ENDINGS: Final[Mapping[tuple[Outcome, int | None, str, str, str], int]] = {
    (Outcome.OK, 200, "", "", ""): 935,
    (Outcome.CLIENT_GONE, 200, "", "", ""): 20,
    (Outcome.REJECTED, 429, "rate_limit_exceeded", "Too many requests in a minute.", ""): 22,
    (Outcome.REJECTED, 400, "invalid_value", "temperature must be at most 2.", "temperature"): 14,
    (Outcome.FAILED, 500, "engine_error", "The engine failed.", ""): 7,
    (Outcome.INTERRUPTED, None, "", "", ""): 2,
}


@dataclass(frozen=True)
class Requests:
    """Columns, sorted by time."""

    start_s: Integers
    slice_at: Integers  # in the list of slices
    num_prompt_tokens: Integers
    num_cached_tokens: Integers
    num_output_tokens: Integers
    is_cut: npt.NDArray[np.bool_]  # by a limit
    latencies_ms: tuple[npt.NDArray[np.float64], ...]  # in the order of `Latency`


def draw(
    num: int, weights: npt.NDArray[np.float64], until: datetime, days: int, seed: int
) -> Requests:
    """Draw about `num` requests, most of them in the afternoon (UTC), half as many at weekends.
    `weights` are the shares of the slices."""
    random = np.random.default_rng(seed)
    first_s = int((until - timedelta(days=days)).timestamp())
    drawn = first_s + random.uniform(0, days * DAY_S, size=num * 2 + 200)
    by_day = 2 / 3 - np.cos(drawn * (2 * math.pi / DAY_S) - math.pi / 6) / 3
    is_weekend = np.isin(drawn // DAY_S % 7, (2, 3))  # day 0 was a Thursday
    chance = by_day * np.where(is_weekend, 0.5, 1.0)
    start_s = np.sort(drawn[random.uniform(size=len(drawn)) < chance][:num].astype(int))
    num = len(start_s)
    prompt = random.lognormal(6, 1, num).astype(np.int64) + 1
    output = random.lognormal(5, 1, num).astype(np.int64) + 1
    first_token = random.lognormal(5, 0.6, num)
    inter_token = random.lognormal(3, 0.4, num)
    total = first_token + inter_token * output
    return Requests(
        start_s,
        random.choice(len(weights), size=num, p=weights),
        prompt,
        prompt // 2,
        output,
        random.uniform(size=num) < 0.01,
        (first_token, inter_token, total, random.lognormal(1, 1.5, num)),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make up. `owners` are the columns of the owners of each key; the first key has a
    quota that cuts answers, the last key a budget that is used up at `exhausted_at`."""

    owners: Sequence[Mapping[str, Any]]
    served: Sequence[str]
    num_requests: int
    until: datetime
    days: int
    seed: int

    @property
    def exhausted_at(self) -> datetime:
        return self.until - timedelta(days=self.days) / 15


def settlements(plan: Plan) -> Iterator[Settlement]:
    """Yield made-up requests by time. Those that limits refused or cut have an `error_code` or a
    `finish_reason` that says so, and no limits yet. Those that ran are not weighted yet."""
    models = list((_MODELS | dict.fromkeys(plan.served, (_CHAT, 15.0))).items())
    # Some keys and models are used more than others.
    num_keys = len(plan.owners)
    tastes = np.random.default_rng(plan.seed).exponential(size=(num_keys, len(models)))
    weights = (tastes / np.arange(1, num_keys + 1)[:, None]).ravel()
    drawn = draw(plan.num_requests, weights / weights.sum(), plan.until, plan.days, plan.seed)
    random = Random(plan.seed)
    counts = (drawn.num_prompt_tokens, drawn.num_cached_tokens, drawn.num_output_tokens)
    columns = (drawn.start_s, drawn.slice_at, drawn.is_cut, *counts, *drawn.latencies_ms)
    for start_s, at, is_cut, *figures in zip(*(each.tolist() for each in columns), strict=True):
        key_at, model_at = divmod(at, len(models))
        model, (endpoint, token_ms) = models[model_at]
        admission = _admission(random, plan.owners[key_at], model, endpoint, start_s, figures[0])
        ending = random.choices(list(_ENDINGS), list(_ENDINGS.values()))[0]
        if key_at == num_keys - 1 and admission.started_at >= plan.exhausted_at:
            ending = _EXHAUSTED
        yield _settlement(random, admission, ending, figures, token_ms, is_cut and not key_at)


def _admission(
    random: Random, owners: Mapping[str, Any], model: str, endpoint: str, start_s: int, num: int
) -> Admission:
    has_end_user = random.random() < 0.4
    return Admission(
        request_id=f"req_demo{random.getrandbits(96):024x}",
        started_at=datetime.fromtimestamp(start_s, UTC),
        model=model,
        asked_model=model,
        endpoint=endpoint,
        dialect="v1",
        is_streamed=endpoint != _EMBEDDINGS and random.random() < 0.7,
        ip=f"10.0.{random.randrange(4)}.{random.randrange(1, 255)}",
        num_request_bytes=200 + 4 * num,
        parameters=_PARAMETERS.format(num % 9 + 1) if endpoint == _CHAT else None,
        end_user=f"{PREFIX}customer-{random.randrange(1, 40)}" if has_end_user else "",
        **owners,
    )


def _settlement(
    random: Random,
    admission: Admission,
    ending: tuple[Outcome, int | None, str, str, str],
    figures: Sequence[float],
    token_ms: float,
    is_cut: bool,  # noqa: FBT001
) -> Settlement:
    outcome, http_status, *error = ending
    about: dict[str, Any] = dict(zip(_ERROR, error, strict=True))
    about |= {"admission": admission, "outcome": outcome, "http_status": http_status}
    if outcome is Outcome.REJECTED:
        return Settlement(**about, total_ms=random.uniform(0.5, 3), weighted_tokens=0.0)
    is_ok, (prompt, cached, output) = outcome is Outcome.OK, map(int, figures[:3])
    first_ms, inter_ms, _, queue_ms = figures[3:]
    output = 0 if not token_ms else output if is_ok else output // 2
    inter_ms *= token_ms / 20
    reason = random.choices(("stop", "length", "tool_calls"), (85, 9, 6))[0] if token_ms else ""
    num_media = random.randrange(1, 4) if admission.model == _VISION else 0
    return Settlement(
        **about,
        num_prompt_tokens=prompt + 256 * num_media,
        num_image_tokens=256 * num_media,
        num_cached_tokens=cached if random.random() < 0.5 else 0,
        num_output_tokens=output,
        queue_ms=queue_ms,
        prefill_ms=first_ms * 0.8,
        first_token_ms=first_ms,
        inter_token_ms=inter_ms if output > 1 else None,
        total_ms=first_ms + queue_ms + inter_ms * output,
        num_response_bytes=300 + 5 * output,
        num_media=num_media,
        num_media_bytes=num_media * random.randrange(20_000, 900_000),
        num_media_pixels=num_media * 448 * 448,
        finish_reason=(QUOTA_EXCEEDED if is_cut and output else reason) if is_ok else "",
    )


def remove_usage(organization_ids: Collection[int]) -> None:
    """Remove all usage of these organisations, also from roll-ups shared with others."""
    with transaction.atomic():
        rollups.take_usage_lock()
        for table in (UsageRecord, RefusedRequest):
            table._default_manager.filter(organization_id__in=organization_ids).delete()
        SpanRollup._default_manager.all().delete()
        slices = UsageSlice.objects.filter(organization_id__in=organization_ids)
        for unit_s, model in LEVELS.items():
            rows = model._default_manager.filter(slice__in=slices).order_by()
            starts = set(rows.values_list("start_s", flat=True))
            rows.delete()
            if unit_s != MINUTE_S:  # minutes are not shared
                for at in sorted(starts):
                    _add_up_shared(model, at)
        slices.delete()
        unused = UsageSlice.objects.filter(dimensions=RollupDimensions.WHAT)
        for model in LEVELS.values():
            rows = model._default_manager.filter(slice=OuterRef("pk")).order_by()
            unused = unused.exclude(Exists(rows))
        unused.delete()


def _add_up_shared(model: type[Rollup], start_s: int) -> None:
    """Write again the roll-ups without an organisation of one hour or day."""
    rows = model._default_manager.filter(start_s=start_s).order_by()
    rows.filter(slice__dimensions=RollupDimensions.WHAT).delete()
    rest = tallies_in(rows.filter(slice__dimensions=RollupDimensions.ALL))
    shared = rollups.together(
        ((at_s, each.at(RollupDimensions.WHAT)), tally) for (at_s, each), tally in rest.items()
    )
    rollups.add_tallies(model, shared, rollups.ids_of({each for _, each in shared}))
