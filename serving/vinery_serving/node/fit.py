"""How much memory a model needs: estimated from its files, and corrected by what was measured.

A model needs its weights, a KV cache, and the memory of an empty engine process. The memory of a
process after loading, and its peak, are stored; the next estimate begins with these figures.

A confined process reads the numbers of the configuration.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from vinery_serving.core.model_files import kv_numbers_of_token, weights_bytes_of
from vinery_serving.engine.options import EngineOptions
from vinery_serving.processes.apart import NoAnswer, run_apart
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder, read_object
from vinery_serving.prompting.pooling_folder import PoolingFolder

_GB: Final = 1 << 30
# An engine process without a model: interpreter, OpenVINO and the buffers of a step.
_PROCESS_BYTES: Final = 120 << 20
# A cache without a fixed size grows with use: one request of this many tokens is expected.
_EXPECTED_TOKENS: Final = 16_384
# Bytes of a number in the KV cache, by the plugin's KV_CACHE_PRECISION. The CPU's default has eight
# bits and a scale for each group.
_NUMBER_BYTES: Final[Mapping[str, float]] = {
    "u3": 0.5,
    "u4": 0.6,
    "i4": 0.6,
    "u8": 1.1,
    "i8": 1.1,
    "f32": 4.0,
}
_OTHER_BYTES: Final = 2.0
# Only this model waits for a busy machine or a slow disk.
_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the files of a model say about the engine."""

    kv_numbers: int = 0  # in the KV cache, of one token
    max_context: int | None = None
    pooling: PoolingFolder | None = None
    error: str = ""  # why no engine can start; empty: nothing is known to be wrong
    is_passing: bool = False  # the error may pass


async def read_facts(folders: Sequence[Path], *, generates: bool) -> EngineFacts:
    """Read the folder of a model, which is the first, and those of its options."""
    try:
        work = partial(find_facts, folders, generates=generates)
        answer = await run_apart(work, reads=folders, within_s=_WITHIN_S)
        return msgspec.json.decode(answer, type=EngineFacts)
    except (NoAnswer, OSError, msgspec.MsgspecError) as error:
        return EngineFacts(error=f"Reading the files of {folders[0]} {error}.", is_passing=True)


def find_facts(folders: Sequence[Path], *, generates: bool) -> bytes:
    """Return `EngineFacts`. Only for a process that may be killed."""
    facts = EngineFacts(sum(map(_kv_numbers, folders)))
    try:
        folder = ModelFolder.read(folders[0], has_templates=False)
        facts = replace(facts, max_context=folder.max_context)
        if not generates:
            pooling = PoolingFolder.read(folder)
            facts = replace(facts, pooling=replace(pooling, prompts={}, default_prompt=""))
    except (UnusableFolder, OSError) as error:
        facts = replace(facts, error=str(error), is_passing=isinstance(error, OSError))
    return msgspec.json.encode(facts)


def _kv_numbers(folder: Path) -> int:
    with suppress(UnusableFolder):
        return kv_numbers_of_token(read_object(folder / "config.json"))
    return 0


@dataclass(frozen=True, slots=True)
class Measured:
    loaded_bytes: int  # after it had loaded
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Need:
    """The memory of a model, in bytes. A measurement includes `weights_bytes`."""

    weights_bytes: int
    cache_bytes: int
    measured: Measured | None = None

    @property
    def total_bytes(self) -> int:
        """A loaded process has weights, and little of the cache."""
        if self.measured is None:
            return self.weights_bytes + self.cache_bytes + _PROCESS_BYTES
        loaded_bytes = self.measured.loaded_bytes + self.cache_bytes
        return max(loaded_bytes, self.measured.peak_bytes)

    def __str__(self) -> str:
        return f"about {_gb(self.total_bytes)}, of which {_gb(self.cache_bytes)} for its KV cache"


def estimate(
    folders: Iterable[Path], device: str, options: EngineOptions, facts: EngineFacts
) -> Need:
    weights_bytes = sum(map(weights_bytes_of, folders))
    if options.cache_size_gb:
        return Need(weights_bytes, options.cache_size_gb * _GB)
    context = options.max_context or facts.max_context or _EXPECTED_TOKENS
    num_numbers = min(context, _EXPECTED_TOKENS) * facts.kv_numbers
    return Need(weights_bytes, round(num_numbers * _number_bytes(device, options)))


def unfit_text(need: Need, budget_bytes: int, device: str, pinned_bytes: int) -> str:
    pinned = f", of which pinned models need {_gb(pinned_bytes)}" if pinned_bytes else ""
    return (
        f"It needs {need}, and models on {device} may use {_gb(budget_bytes)}{pinned}. Use "
        "fewer bits for its weights, a smaller cache_size_gb, or raise VINERY_MODEL_MEMORY_MB."
    )


def measure(pid: int, loaded_bytes: int | None = None) -> Measured | None:
    """Return the memory of a process, with its part of shared pages. None: unknown.

    Without `loaded_bytes` the process has just loaded: the peak of loading is forgotten.
    """
    try:
        own = _sizes(f"/proc/{pid}/smaps_rollup")["Pss"]
        if loaded_bytes is None:
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
        sizes = _sizes(f"/proc/{pid}/status")
        return Measured(loaded_bytes or own, own + max(0, sizes["VmHWM"] - sizes["VmRSS"]))
    except (OSError, KeyError, ValueError):
        return None


def _sizes(path: str) -> Mapping[str, int]:
    rows = (line.split() for line in Path(path).read_text(encoding="ascii").splitlines())
    return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows if row[-1] == "kB"}


def _number_bytes(device: str, options: EngineOptions) -> float:
    default = "u8" if device.startswith("CPU") else "f16"
    of_plugin = options.plugin.get("KV_CACHE_PRECISION", default)
    precision = str(options.kv_cache_precision or of_plugin).lower()
    return _NUMBER_BYTES.get(precision, _OTHER_BYTES)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / _GB:.2f} GB"
