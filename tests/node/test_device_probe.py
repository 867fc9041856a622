"""A short process finds the devices of this machine."""

import os
import sys

import pytest

from tests.tables import table
from vinery_serving.node import device_probe
from vinery_serving.node.device_probe import ProbeFailed


@pytest.mark.live
async def test_openvino_lists_the_processor_with_the_memory_of_the_machine() -> None:
    found = {each.name: each for each in await device_probe.find()}
    assert found["CPU"].full_name
    assert found["CPU"].memory_bytes == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@table(
    "script, timeout_s, reason",
    [
        ("echo 'a driver crashed' >&2; exit 1", 60, "not list the devices: a driver crashed"),
        ("kill -SEGV $$", 60, "could not list the devices"),
        ("exec sleep 600", 0, "did not list the devices within"),
    ],
)
async def test_a_crash_or_a_hang_has_its_reason(tmp_path, monkeypatch, script, timeout_s, reason):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(device_probe, "TIMEOUT_S", timeout_s)

    with pytest.raises(ProbeFailed, match=reason):
        await device_probe.find()
