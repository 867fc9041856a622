"""The work and the logs of a model's engines, and the fields of the API about them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from rest_framework import serializers

from vinery_serving.engine.config import ENGINE_MODULE
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.processes.logs.file import engine_name, log_path
from vinery_serving.processes.logs.reading import LogFollower, last_lines

# 30 ms of each command that shows models.
if TYPE_CHECKING:
    from vinery_serving.transport.messages import EngineStats


def joined(engines: Sequence[EngineStats]) -> EngineStats:
    """Return the stats of all engines of a model: sums, and the longest times."""
    if len(engines) == 1:
        return engines[0]
    from vinery_serving.core.events import TokenCounts
    from vinery_serving.transport.messages import EngineStats

    used_bytes = sum(each.cache_usage * each.cache_bytes for each in engines)
    cache_bytes = sum(each.cache_bytes for each in engines)
    tokens = {
        field.name: sum(getattr(each.tokens, field.name) for each in engines)
        for field in fields(TokenCounts)
    }
    return EngineStats(
        num_running=sum(each.num_running for each in engines),
        num_waiting=sum(each.num_waiting for each in engines),
        tokens=TokenCounts(**tokens),
        prompt_tokens_per_s=sum(each.prompt_tokens_per_s for each in engines),
        output_tokens_per_s=sum(each.output_tokens_per_s for each in engines),
        first_token_s=_longest([each.first_token_s for each in engines]),
        inter_token_s=_longest([each.inter_token_s for each in engines]),
        cache_usage=used_bytes / max(1, cache_bytes),
        cache_bytes=cache_bytes,
        draft_loss=max((loss for each in engines if (loss := each.draft_loss)), default=None),
    )


def _longest(times_s: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [each for each in times_s if each is not None]
    return (max(p50 for p50, _ in known), max(p95 for _, p95 in known)) if known else None


IDLE: Final[Mapping[str, EngineStats]] = {}
# How this process asks engines for their work, by the names of models. The web process sets it.
_ask: list[Callable[[], Mapping[str, EngineStats]]] = [lambda: IDLE]


def show_engine_work(ask: Callable[[], Mapping[str, EngineStats]]) -> None:
    """Let the API, which may not import the runtime, show what engines do now."""
    _ask[:] = [ask]


def engine_work() -> Mapping[str, EngineStats]:
    return _ask[0]()


class WaitSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A time in the last 200 requests."""

    p50 = serializers.FloatField(help_text="The median in seconds.")
    p95 = serializers.FloatField(help_text="The 95th percentile in seconds.")

    def to_representation(self, instance: Any) -> dict[str, float]:
        return dict(zip(("p50", "p95"), instance, strict=True))


class ReplicaSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """One engine of a model with several."""

    replica = serializers.IntegerField(help_text="From 0.")
    device = serializers.CharField()
    host = serializers.CharField(default="", help_text="Its name; empty: there is only one.")
    state = serializers.ChoiceField(choices=EngineState.choices)
    pid = serializers.IntegerField(allow_null=True, help_text="Its process; null: it has none.")
    num_restarts = serializers.IntegerField()
    error = serializers.CharField(help_text="Why it ended or did not load; empty: it did not.")


class EngineWorkSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """What an engine does now, and has done since its start."""

    prompt_tokens_per_s = serializers.FloatField(help_text="Prompt tokens, of the last 10 s.")
    output_tokens_per_s = serializers.FloatField(help_text="Generated tokens, of the last 10 s.")
    first_token_s = WaitSerializer(
        allow_null=True,
        help_text="From the arrival at the engine to the first token; null: no request yet.",
    )
    inter_token_s = WaitSerializer(
        allow_null=True,
        help_text="The mean time between the tokens of a request; null: no request yet.",
    )
    cache_usage = serializers.FloatField(help_text="The used part of `cache_bytes`, 0 to 1.")
    cache_bytes = serializers.IntegerField(
        help_text="The present size of the KV cache: its maximum with the option `cache_size_gb`, "
        "otherwise it grows as needed."
    )
    prefix_hit_rate = serializers.FloatField(
        allow_null=True,
        help_text="The part of all prompt tokens that the prefix cache had; null: no prompt yet.",
    )
    draft_acceptance = serializers.FloatField(
        allow_null=True,
        help_text="The part of all draft tokens that were accepted; null: there were none.",
    )
    draft_loss = serializers.FloatField(
        allow_null=True,
        help_text="How much slower answers were with draft tokens, 0.1 for a tenth, so that none "
        "are proposed just now; null: they are, or the model has none.",
    )


class EngineSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """The engine of a model, as the node has reported it."""

    reason = serializers.CharField(
        read_only=True, help_text="What happened and what to do; empty: nothing failed."
    )
    changed_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When it last reported; null: it never has."
    )
    memory_bytes = serializers.SerializerMethodField(
        help_text="Resident memory of the process; null: it does not run on this host."
    )
    num_running = serializers.IntegerField(
        source="work.num_running",
        read_only=True,
        allow_null=True,
        help_text="Answers that are generated now; null: the engine does not answer.",
    )
    num_waiting = serializers.IntegerField(
        source="work.num_waiting",
        read_only=True,
        allow_null=True,
        help_text="Answers that wait for a slot; null: the engine does not answer.",
    )
    needed_bytes = serializers.IntegerField(
        read_only=True,
        allow_null=True,
        help_text="Memory that it is expected to need, from its files and from what was measured; "
        "null: not known yet.",
    )
    waiting_since = serializers.SerializerMethodField(
        help_text="When the oldest of them came; null: none waits."
    )

    work = EngineWorkSerializer(
        read_only=True,
        allow_null=True,
        help_text="Speeds, waits and caches; null: the engine does not answer.",
    )
    replicas = ReplicaSerializer(
        many=True,
        read_only=True,
        help_text="The engines of a model with several; empty: it has one.",
    )

    class Meta:
        model = EngineStatus
        fields = [
            *("reason", "last_error", "num_attempts", "max_attempts", "next_attempt_at"),
            *("changed_at", "num_restarts", "max_context", "pid", "memory_bytes"),
            *("has_former", "replicas", "needed_bytes", "loaded_bytes", "peak_bytes"),
            *("num_running", "num_waiting", "num_waiting_to_load", "waiting_since", "work"),
        ]
        read_only_fields = fields

    def get_memory_bytes(self, status: EngineStatus) -> int | None:
        return None if status.pid is None else _memory_bytes(status.pid)

    def get_waiting_since(self, status: EngineStatus) -> datetime | None:
        return status.waiting_since if status.num_waiting_to_load else None


def _memory_bytes(pid: int) -> int | None:
    """Return the resident memory of an engine process of this host; None for another process."""
    import psutil  # few commands show engines

    try:
        process = psutil.Process(pid)
        is_engine = ENGINE_MODULE in process.cmdline()
        return int(process.memory_info().rss) if is_engine else None
    except psutil.Error:
        return None


NUM_LINES: Final = 50
# How many lines a page that follows a log gets at once.
NUM_FOLLOWED: Final = 500
# Shown where there is no log.
NO_LOG: Final = (
    "No engine of this model has logged anything on this host. With several hosts, the log is on "
    "the host that runs the engine: vinery logs --model {model}"
)


def engine_log(model: str, num_lines: int = NUM_LINES) -> list[str] | None:
    """Return the last lines, the oldest first; None: this home has no log of the model."""
    try:
        return [entry.text() for entry in last_lines(engine_log_path(model), num_lines)]
    except OSError:
        return None


def engine_log_path(model: str) -> Path:
    return log_path(Path(settings.VINERY_LOG_DIR), engine_name(model))


def log_after(path: Path, position: str) -> tuple[list[str], str]:
    """Return the lines of a log after a position, the oldest first, and the next position. An
    empty position begins with the last lines."""
    try:
        follower = LogFollower.after(path, position) if position else LogFollower(path)
        try:
            if not position:
                last = list(islice(follower.backwards(), NUM_FOLLOWED))
                return [entry.text() for entry in reversed(last)], follower.position
            lines: deque[str] = deque(maxlen=NUM_FOLLOWED)
            for _ in range(3):  # the rest of the former file, and then newer files
                lines.extend(entry.text() for entry in follower.read())
            return list(lines), follower.position
        finally:
            follower.close()
    except OSError:
        return [], position


def engine_log_text(model: str, num_lines: int = NUM_LINES) -> str:
    lines = engine_log(model, num_lines)
    return "\n".join(lines) if lines else NO_LOG.format(model=model)
