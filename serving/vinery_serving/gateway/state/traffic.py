"""Counts the requests of this process and their durations, for `/metrics`.

Each settled request is counted with the values of its usage record. Belongs to the event loop.
Unknown models have one label value, so that clients cannot add label values.
"""

from collections import Counter, defaultdict
from collections.abc import Container
from typing import Final

from vinery_accounts.usage.entries import Outcome, Settlement
from vinery_accounts.usage.filters import Effect
from vinery_serving.core.events import QUOTA, FinishReason
from vinery_serving.gateway.engines.meter import Histogram

# The reasons for which an answer ended, as vLLM names them.
_FINISHED: Final = {Outcome.OK: "stop", Outcome.CLIENT_GONE: "abort", Outcome.FAILED: "error"}
_CUT_SHORT: Final = frozenset({FinishReason.LENGTH.value, QUOTA})
UNKNOWN: Final = "unknown"  # the label of models that are not served
_TOKEN_GAP_S: Final = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0)
_REQUEST_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)
_MEDIA_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BOUNDS_S: Final = {
    "first_token": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    "inter_token": _TOKEN_GAP_S,
    "token_gap": _TOKEN_GAP_S,  # the same, once for each gap
    "total": _REQUEST_S,
    "answer": _REQUEST_S,  # of whole answers
    "queue": (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    "fetch": _MEDIA_S,
    "decode": _MEDIA_S,
    "encode": _MEDIA_S,
}
# Of requests with pictures, videos or files.
_MEDIA: Final = ("media", "media_bytes", "media_pixels", "image_tokens", "video_tokens")


class ModelTraffic:
    """The requests to one model, by endpoint and HTTP status, and their durations."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int | None]] = Counter()
        self.finished: Counter[str] = Counter()  # begun answers, by finish reason
        self.durations = {name: Histogram(bounds) for name, bounds in _BOUNDS_S.items()}
        self.media = dict.fromkeys(_MEDIA, 0)

    def count(self, settlement: Settlement) -> None:
        self.requests[settlement.admission.endpoint, settlement.http_status] += 1
        for name in _MEDIA:
            self.media[name] += getattr(settlement, f"num_{name}")
        for name, histogram in self.durations.items():
            duration_ms = getattr(settlement, f"{name}_ms", None)
            if duration_ms is not None:
                histogram.count(duration_ms)
        if settlement.first_token_ms is not None:
            self._count_answer(settlement)

    def _count_answer(self, settlement: Settlement) -> None:
        if (finished := _FINISHED.get(settlement.outcome)) is None:
            return
        is_whole = settlement.outcome is Outcome.OK
        is_cut = is_whole and settlement.finish_reason in _CUT_SHORT
        self.finished["length" if is_cut else finished] += 1
        if is_whole and settlement.total_ms is not None:
            self.durations["answer"].count(settlement.total_ms)
        if settlement.inter_token_ms is not None:
            num_gaps = max(settlement.num_output_tokens - 1, 1)
            self.durations["token_gap"].count(settlement.inter_token_ms, num_gaps)


class Traffic:
    def __init__(self) -> None:
        self.models: defaultdict[str, ModelTraffic] = defaultdict(ModelTraffic)
        # Fields of bodies that took no effect, by names of a table.
        self.ignored: Counter[str] = Counter()
        # By the limit's metric, kind of scope, and effect.
        self.refusals: Counter[tuple[str, str, Effect]] = Counter()

    def settled(self, settlement: Settlement, served: Container[str]) -> None:
        """Count a settled request. `served` has the names of all models."""
        name = settlement.admission.model
        model = self.models[name if name in self.models or name in served else UNKNOWN]
        model.count(settlement)
        for limit in settlement.bound_limits:
            effect = Effect.REFUSED if settlement.http_status == 429 else Effect.CUT_SHORT
            if limit.is_shadow:
                effect = Effect.SHADOW
            self.refusals[limit.metric, limit.scope.partition(":")[0], effect] += 1
