"""Memory that is given back, and the limit of a web process."""

import os

import pytest

from tests.platform_ import scripts
from vinery_platform.config.env import SettingError
from vinery_platform.processes.memory import max_web_memory_from_env, resident_bytes

MIB = 1 << 20


def test_the_memory_limit_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1024 <= max_web_memory_from_env() <= 4096
    monkeypatch.setenv("VINERY_WEB_MEMORY_MB", "0")
    assert max_web_memory_from_env() == 0
    monkeypatch.setenv("VINERY_WEB_MEMORY_MB", "much")
    with pytest.raises(SettingError, match="VINERY_WEB_MEMORY_MB"):
        max_web_memory_from_env()


# Grows by 300 MB of garbage that only the cycle collector finds, between two strings that stay, so
# that the allocator keeps the freed memory; then waits until the memory shrinks.
GROWING = """
import gc, os, time
from vinery_platform.processes import memory

class Ring:
    def __init__(self):
        self.itself, self.text = self, bytes(3000)

def megabytes():
    return memory.resident_bytes(os.getpid()) >> 20

gc.disable()
memory._LOOK_INTERVAL_S = 0.05
before = megabytes()
is_idle = False
memory.begin_giving_back(lambda: is_idle)
rings = [Ring() for _ in range(100_000)]
last = bytes(3000)
del rings
kept = megabytes() - before
is_idle = True
end = time.monotonic() + 60
while (left := megabytes() - before) > 50 and time.monotonic() < end:
    time.sleep(0.05)
print(kept, left)
"""


def test_a_real_process_gives_its_memory_back_and_an_ended_one_has_none() -> None:
    kept_mb, left_mb = map(int, scripts.new_python("-c", GROWING).stdout.split())
    assert kept_mb > 250, "without this the allocator gives it back itself"
    assert left_mb <= 50

    assert resident_bytes(os.getpid()) > MIB
    assert resident_bytes(1 << 30) == 0
