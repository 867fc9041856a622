"""The memory and disk of this machine, and the memory that a model needs.

The need is estimated from files and configuration: the weights as stored; the KV cache by its
formula in 16 bits, the most that OpenVINO takes; and the overhead of an engine process.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vinery_serving.core.model_files import context_of, kv_numbers_of_token

# The length of one conversation that a model should have room for.
CONTEXT_TOKENS: Final = 8192


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    weights_bytes: int
    kv_cache_bytes: int
    overhead_bytes: int
    context_tokens: int  # for which the KV cache is

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_cache_bytes + self.overhead_bytes

    @property
    def least_bytes(self) -> int:
        """Without a KV cache: with less memory the model cannot be loaded at all."""
        return self.weights_bytes + self.overhead_bytes


def memory_need(weights_bytes: int, config: Mapping[str, Any], context: int) -> MemoryNeed:
    """Return the need for a conversation of `context` tokens, or of as many as the model takes.
    Without the numbers in config.json the KV cache counts as empty."""
    tokens = min(context, context_of(config) or context)
    return need_of(weights_bytes, kv_numbers_of_token(config) * 2, tokens)


def need_of(weights_bytes: int, kv_bytes: int, tokens: int) -> MemoryNeed:
    """Return the need for `tokens` of `kv_bytes` each. The overhead is an engine process without a
    model (measured: 154-159 MB), and a tenth of the weights for the compiled graph."""
    overhead_bytes = (160 << 20) + round(weights_bytes * 0.1)
    return MemoryNeed(weights_bytes, tokens * kv_bytes, overhead_bytes, tokens)


_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),  # version 2
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # version 1
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory of the device for a model, and the free disk."""

    memory_bytes: int
    free_disk_bytes: int
    device: str = "CPU"


def this_machine(models_dir: Path, device: str = "CPU", device_bytes: int | None = None) -> Machine:
    """Return this machine. `device_bytes` is a device's own memory; None: the memory of the
    machine, or of the container of this process."""
    return Machine(device_bytes or memory_limit(), free_bytes(models_dir), device)


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
