"""The commands and programs of the guides, run beside a platform as a reader would run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from tests.conftest import REPOSITORY, Running, run_platform
from tests.docs.markdown import blocks
from tests.docs.test_guide_files import metric_names

pytestmark = pytest.mark.system

GUIDES = REPOSITORY / "docs" / "guides"
# Blocks of `bash` are for every reader as they stand. Other tests run those of these two guides.
OTHERS = ("backup.md", "management-api.md")
RUNNABLE = [
    guide.name
    for guide in sorted(GUIDES.glob("*.md"))
    if guide.name not in OTHERS and any(block.language == "bash" for block in blocks(guide))
]
# Only with Redis.
OF_REDIS = {"vinery_limits_store_away"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_platform(tmp_path_factory.mktemp("guides") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def shell(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a reader's shell: a home with a model, and the command `vinery`."""
    home = tmp_path_factory.mktemp("reader")
    shutil.copytree(REPOSITORY / "models" / "tiny-chat", home / "models" / "qwen3-0.6b")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(home), "PATH": path, "VINERY_URL": platform.base_url}
    return {**platform.environment, **own}


def run(shell: Mapping[str, str], *command: str) -> str:
    ended = subprocess.run(
        command, env=dict(shell), capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_commands_of_a_guide_succeed(name: str, shell: Mapping[str, str]) -> None:
    script = "\n".join(block.text for block in blocks(GUIDES / name) if block.language == "bash")

    assert run(shell, "bash", "-eu", "-o", "pipefail", "-c", script)


@pytest.mark.parametrize(
    ("client", "words"),
    [("OpenAI(", "Paris"), ("AzureOpenAI(", "Paris"), ("Client(", "name='Ada' age=36")],
)
def test_a_recipe_of_the_openai_client_answers(
    client: str, words: str, platform: Running, shell: Mapping[str, str]
) -> None:
    [program] = [
        block.text
        for block in blocks(GUIDES / "clients.md")
        if block.language == "python" and f"openai.{client}" in block.text
    ]

    server = {"OPENAI_BASE_URL": f"{platform.base_url}/v1", "OPENAI_API_KEY": platform.api_key}

    assert words in run({**shell, **server}, sys.executable, "-c", program)


def test_the_recipe_of_anthropics_client_answers(
    platform: Running, shell: Mapping[str, str]
) -> None:
    [program] = [
        block.text
        for block in blocks(GUIDES / "clients.md")
        if block.language == "python" and "anthropic.Anthropic(" in block.text
    ]

    server = {"OPENAI_BASE_URL": f"{platform.base_url}/v1", "OPENAI_API_KEY": platform.api_key}

    assert "Paris" in run({**shell, **server}, sys.executable, "-c", program)


def test_monitoring_names_every_metric(platform: Running) -> None:
    page = httpx.get(f"{platform.base_url}/metrics").text
    families = set(re.findall(r"^# TYPE (vinery_\w+)", page, re.M))
    guide = (GUIDES / "monitoring.md").read_text(encoding="utf-8")

    assert len(families) > 30
    assert {name for name in families if f"`{name}`" not in guide} == set()


def test_every_metric_of_the_dashboard_and_the_alerts_exists(platform: Running) -> None:
    page = httpx.get(f"{platform.base_url}/metrics").text
    families = set(re.findall(r"^# TYPE (\w+)", page, re.M))
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metric_names()}

    assert len(named) > 20
    assert named - OF_REDIS - families == set()
