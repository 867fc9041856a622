"""How long what stops Vinery waits for it: the files that we ship fit the default limit."""

import os
import re
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from vinery.config.env import SettingError
from vinery.process import draining, parent_watch
from vinery.process.supervisor import _TOTAL_GRACE_S

FILES = REPOSITORY / "docs" / "guides" / "files"


def needed_s(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.delenv("VINERY_DRAIN_S", raising=False)
    return draining.limit_from_env() + _TOTAL_GRACE_S


def test_systemd_compose_and_docker_wait_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = (FILES / "vinery.service").read_text()
    compose = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text())
    guide = (REPOSITORY / "docs" / "guides" / "deployment.md").read_text()
    found = [
        re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M),
        re.fullmatch(r"(\d+)s", compose["services"]["vinery"]["stop_grace_period"]),
        re.search(r"^docker run .*--stop-timeout (\d+)", guide, re.M),
    ]

    assert all(match and int(match[1]) > needed_s(monkeypatch) for match in found)


def test_kubernetes_waits_long_enough_after_its_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    (pod,) = [each["spec"]["template"]["spec"] for each in documents if _has_pod(each)]
    words = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]

    assert words[0] == "sleep"
    left_s = pod["terminationGracePeriodSeconds"] - int(words[1])
    assert left_s > needed_s(monkeypatch)


def _has_pod(document: dict[str, Any]) -> bool:
    return document["kind"] == "StatefulSet"


def test_a_process_without_its_supervisor_has_a_short_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VINERY_DRAIN_S", "600")
    assert draining.limit_s() == 600

    monkeypatch.setattr(parent_watch, "_watched", [os.getppid() + 1])
    assert draining.limit_s() < parent_watch.GRACE_S - draining.CLOSE_WITHIN_S
    monkeypatch.setenv("VINERY_DRAIN_S", "soon")
    with pytest.raises(SettingError, match="VINERY_DRAIN_S"):
        draining.limit_from_env()
