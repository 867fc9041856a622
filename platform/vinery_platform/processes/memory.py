"""The memory of processes and of this machine, and memory that is given back to it."""

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_serving.models.hub.machine import memory_limit

_MIB: Final = 1 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# A web process needs about 150 MB; a large tokenizer takes some hundred more.
_LEAST_MB: Final = 1024
_MOST_MB: Final = 4096
# The default: this part of the machine's memory.
_SHARE: Final = 8
# The default share of models; the rest is for web processes, loading and the system.
_MODELS_PERCENT: Final = 80

_LOOK_INTERVAL_S: Final = 5.0
# In a process that has always requests.
_LOOKS_BETWEEN: Final = 60
# The least growth that is given back.
_WORTH_BYTES: Final = 32 * _MIB


def max_web_memory_from_env() -> int:
    """VINERY_WEB_MEMORY_MB; 0: any amount. Raises `SettingError` for a number out of range."""
    share_mb = memory_limit() // _SHARE // _MIB
    default_mb = min(max(share_mb, _LEAST_MB), _MOST_MB)
    return env.integer("VINERY_WEB_MEMORY_MB", default_mb)


def model_memory_from_env() -> dict[str, int]:
    """VINERY_MODEL_MEMORY_MB: the bytes that models may use, by device; a device without a number
    has no limit. Raises `SettingError` for what is no number and no list such as CPU=8000,GPU=4000.
    """
    found = {"CPU": memory_limit() * _MODELS_PERCENT // 100}
    for word in env.words("VINERY_MODEL_MEMORY_MB"):
        device, equals, number = word.rpartition("=")
        if not number.isdecimal() or (equals and not device):
            raise SettingError(
                f"VINERY_MODEL_MEMORY_MB={word!r} is not the memory of a device. Set it to a "
                "number of MB for the CPU, or to a list such as CPU=8000,GPU=4000; 0 is no limit."
            )
        found[device.strip().upper().removesuffix(".0") or "CPU"] = int(number) * _MIB
    return {device: num_bytes for device, num_bytes in found.items() if num_bytes}


def resident_bytes(pid: int) -> int:
    """The memory of a process; 0 if there is none."""
    if sys.platform == "linux":
        try:
            return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            return 0
    import psutil  # 3 MB, and 10 ms of each start

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def begin_giving_back(is_idle: Callable[[], bool]) -> None:
    """Give the memory of large requests back to the system after their end, for as long as this
    process runs. The allocator keeps freed memory, and the cycle collector finds garbage late,
    because it must not delay requests: so it runs while the process is idle. Does nothing without
    glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        words = (is_idle, trim)
        threading.Thread(target=_give_back, args=words, name="memory", daemon=True).start()


def _give_back(is_idle: Callable[[], bool], trim: Callable[[int], object]) -> None:
    kept_bytes = resident_bytes(os.getpid())
    for num_looks in count(1):
        time.sleep(_LOOK_INTERVAL_S)
        has_grown = resident_bytes(os.getpid()) >= kept_bytes + _WORTH_BYTES
        if has_grown and is_idle():
            gc.collect()
            trim(0)
            kept_bytes = resident_bytes(os.getpid())
        elif has_grown and not num_looks % _LOOKS_BETWEEN:
            trim(0)
