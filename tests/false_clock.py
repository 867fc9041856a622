"""A wall clock that a test sets, for all processes of a platform. Monotonic clocks go on."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

# Adds the seconds in a shared file to the wall clock. libfaketime breaks sleeps of threads.
_CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *shift;

__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
    void *page = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    shift = page == MAP_FAILED ? 0 : page;
    close(fd);
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += *shift;
    return failed;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class FalseClock:
    """Right until it is set. Skips the test if there is no C compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler for a clock that can be set")
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(_CLOCK)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        self._shift = folder / "shift"
        self._shift.write_bytes(struct.pack("l", 0))
        # Of the processes that have this clock.
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(self._shift)}

    def set(self, shift_s: int) -> None:
        """Forward from the right time, or back by a negative number."""
        with self._shift.open("r+b") as file:
            file.write(struct.pack("l", shift_s))
