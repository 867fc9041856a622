"""Engines that nobody adopts end, half a minute later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_platform, runs, until
from tests.system.test_engines_and_nodes import kill_all_but_engines

pytestmark = pytest.mark.system


def test_engines_end_when_all_other_processes_were_killed(tmp_path: Path) -> None:
    with run_platform(tmp_path / "home") as platform:
        left = kill_all_but_engines(platform)

        until(lambda: not any(map(runs, left)), timeout_s=60)
