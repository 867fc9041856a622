"""The memory and disk of this machine, and the memory that a model needs.

The need is estimated from files and configuration: the weights as stored; the KV cache by its
formula in 16 bits, the most that OpenVINO takes; and the overhead of an engine process. A
measurement of the node corrects the overhead: that of the model, on this machine, with weights of
the most similar size.
"""

import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vinery_serving.core.model_files import context_of, kv_numbers_of_token

# The length of one conversation that a model should have room for.
CONTEXT_TOKENS: Final = 8192
# A measurement corrects an estimate by at most this factor: an engine may have had odd options.
_MAX_CORRECTION: Final = 4.0


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    """The weights of a model on this machine, and the memory of the loaded process, in bytes."""

    weights_bytes: int
    loaded_bytes: int

    @property
    def correction(self) -> float:
        """The measured overhead as a multiple of the estimate, within `_MAX_CORRECTION`."""
        overhead_bytes = self.loaded_bytes - self.weights_bytes
        factor = overhead_bytes / _estimated_overhead(self.weights_bytes)
        return min(max(factor, 1 / _MAX_CORRECTION), _MAX_CORRECTION)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The parts of a model's memory, in bytes."""

    weights_bytes: int
    kv_cache_bytes: int
    overhead_bytes: int
    context_tokens: int  # for which the KV cache is
    is_corrected: bool = False  # the overhead, by a measurement on this machine

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_cache_bytes + self.overhead_bytes

    @property
    def least_bytes(self) -> int:
        """Without a KV cache: with less memory the model cannot be loaded at all."""
        return self.weights_bytes + self.overhead_bytes


def memory_need(
    weights_bytes: int,
    config: Mapping[str, Any],
    context: int,
    engines: Sequence[MeasuredEngine] = (),
) -> MemoryNeed:
    """Return the need for a conversation of `context` tokens, or of as many as the model takes."""
    tokens = min(context, context_of(config) or context)
    return need_of(weights_bytes, kv_bytes_of_token(config), tokens, engines)


def need_of(
    weights_bytes: int, kv_bytes: int, tokens: int, engines: Sequence[MeasuredEngine] = ()
) -> MemoryNeed:
    """Return the need for `tokens` of `kv_bytes` each. `engines` were measured on the machine."""

    def distance(engine: MeasuredEngine) -> float:
        return abs(math.log(max(engine.weights_bytes, 1) / max(weights_bytes, 1)))

    similar = min(engines, key=distance, default=None)
    correction = 1.0 if similar is None else similar.correction
    return MemoryNeed(
        weights_bytes=weights_bytes,
        kv_cache_bytes=tokens * kv_bytes,
        overhead_bytes=round(correction * _estimated_overhead(weights_bytes)),
        context_tokens=tokens,
        is_corrected=similar is not None,
    )


def _estimated_overhead(weights_bytes: int) -> float:
    """An engine process without a model (measured: 154-159 MB), and a tenth of the weights for the
    compiled graph."""
    return (160 << 20) + weights_bytes * 0.1


def kv_bytes_of_token(config: Mapping[str, Any]) -> int:
    """Return what a token takes in the KV cache; 0 if config.json does not have the numbers."""
    return kv_numbers_of_token(config) * 2


_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),  # version 2
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # version 1
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory of the device for a model, the free disk, and engines measured on the device."""

    memory_bytes: int
    free_disk_bytes: int
    device: str = "CPU"
    engines: tuple[MeasuredEngine, ...] = ()


def this_machine(
    models_dir: Path,
    device: str = "CPU",
    device_bytes: int | None = None,
    engines: Iterable[MeasuredEngine] = (),
) -> Machine:
    """Return this machine. `device_bytes` is a device's own memory; None: the memory of the
    machine, or of the container of this process."""
    return Machine(
        memory_bytes=device_bytes or memory_limit(),
        free_disk_bytes=free_bytes(models_dir),
        device=device,
        engines=tuple(engines),
    )


def memory_limit(cgroups: tuple[Path, ...] = _CGROUPS) -> int:
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in cgroups:
        try:
            limits.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # no container, or "max"
            continue
    return min(limits)


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, which may not exist yet. Raises OSError."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(os.fspath(folder)).free
