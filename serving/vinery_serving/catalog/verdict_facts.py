"""What pages and commands show of a verdict about a model of a hub."""

from collections.abc import Iterator

from vinery_serving.hub.verdict import Verdict, gigabytes


def verdict_facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield names and texts, the most important first."""
    need, machine = verdict.need, verdict.machine
    commit = f" at {verdict.commit[:12]}" if verdict.commit else ""  # files of this machine: none
    basis = "(as measured here with other models)" if need.is_corrected else "(estimated)"
    yield "model", f"{verdict.repository}{commit}"
    yield "loads", verdict.answer
    yield "format", f"{verdict.format}, {verdict.precision or 'precision unknown'}"
    yield "task", f"{verdict.task}, {verdict.architecture or 'architecture unknown'}"
    yield "licence", verdict.licence or "unknown"
    yield (
        "files",
        f"{gigabytes(verdict.size_bytes)} of {gigabytes(machine.free_disk_bytes)} free",
    )
    yield (
        "memory",
        f"{gigabytes(need.total_bytes)} of {gigabytes(machine.memory_bytes)}: weights "
        f"{gigabytes(need.weights_bytes)}, KV cache of {need.context_tokens:,} tokens "
        f"{gigabytes(need.kv_cache_bytes)}, engine {gigabytes(need.overhead_bytes)} {basis}",
    )
