"""Shipped parts: wheel, image, lock, containers, `make install`, and the time that a stop gives."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY
from tests.platform_ import scripts
from tests.tables import table
from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_platform.processes import heartbeats
from vinery_platform.processes.supervisor import _TOTAL_GRACE_S
from vinery_serving.processes import parent

DOCKERFILE = (REPOSITORY / "docker" / "Dockerfile").read_text(encoding="utf-8")
# Folders of the repository, and where the wheel has them.
FOLDERS = {
    "platform/vinery_platform": "vinery_platform",
    "serving/vinery_serving": "vinery_serving",
    "accounts/vinery_accounts": "vinery_accounts",
    "templates": "vinery_platform/templates",
    "models/tiny-chat": "vinery_platform/models/tiny-chat",
}


def copied_paths() -> list[str]:
    lines = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    return [path for paths in lines for path in paths if not path.startswith(("--", "/"))]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from nothing but what the Dockerfile copies."""
    sources = tmp_path_factory.mktemp("sources")
    for path in copied_paths():
        source, copy = REPOSITORY / path, sources / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, copy)
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet")
    subprocess.run(
        [*command, "--no-index", "--wheel-dir", str(sources / "dist"), str(sources)], check=True
    )
    [path] = (sources / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_has_all_that_a_clone_serves_and_no_foreign_name(wheel: zipfile.ZipFile) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", *FOLDERS], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    expected = {
        str(Path(target, Path(path).relative_to(folder)))
        for path in tracked.stdout.splitlines()
        for folder, target in FOLDERS.items()
        if Path(path).is_relative_to(folder)
    }

    assert len(expected) > 400
    assert expected <= set(wheel.namelist())
    packages = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in packages if not name.endswith(".dist-info")} == {
        *("vinery_platform", "vinery_serving", "vinery_accounts")
    }


def test_the_image_copies_nothing_that_docker_ignores() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert sorted(sent) == sorted(copied_paths())


LOCK = (REPOSITORY / "requirements.lock").read_text(encoding="ascii")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENTRIES = [entry.replace("\\\n", " ") for entry in re.split(r"\n(?=\S)", LOCK.strip())]


def locked() -> dict[str, str]:
    found = {}
    for entry in ENTRIES:
        requirement = Requirement(entry.partition("--hash")[0].strip())
        [exact] = requirement.specifier
        assert exact.operator == "==", entry
        found[canonicalize_name(requirement.name)] = exact.version
    return found


def test_the_locked_versions_are_in_the_ranges_of_the_project_and_each_archive_has_a_hash() -> None:
    versions = locked()
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["build"]):
        requirement = Requirement(text)
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{text}: {version}"

    assert len(ENTRIES) == len(locked()) > 50
    for entry in ENTRIES:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}(\s|$)", entry), entry
    assert "://" not in LOCK
    assert "index" not in LOCK


FOLDER = REPOSITORY / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_every_secret_is_a_file_and_every_container_has_limits_and_gains_no_privileges() -> None:
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert used == set(COMPOSE["secrets"])
    assert all(set(each) == {"file"} for each in COMPOSE["secrets"].values())

    for service in SERVICES.values():
        assert service["mem_limit"] and service["pids_limit"]
        assert "no-new-privileges:true" in service["security_opt"]
    mounts = [mount for service in SERVICES.values() for mount in service.get("tmpfs", ())]
    assert mounts
    assert all("size=" in mount for mount in mounts), "folders in memory"
    assert "${MODELS:-./models}:/models:ro" in SERVICES["vinery"]["volumes"]


FILES = REPOSITORY / "docs" / "guides" / "files"


def test_what_stops_vinery_waits_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VINERY_DRAIN_S", raising=False)
    needed_s = env.integer("VINERY_DRAIN_S") + _TOTAL_GRACE_S
    unit = (FILES / "vinery.service").read_text()
    guide = (REPOSITORY / "docs" / "guides" / "deployment.md").read_text()
    found = [
        re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M),
        re.fullmatch(r"(\d+)s", SERVICES["vinery"]["stop_grace_period"]),
        re.search(r"^docker run .*--stop-timeout (\d+)", guide, re.M),
    ]
    assert all(match and int(match[1]) > needed_s for match in found)

    kind, documents = "StatefulSet", yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    (pod,) = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == kind]
    words = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert words[0] == "sleep"
    assert pod["terminationGracePeriodSeconds"] - int(words[1]) > needed_s


def test_a_process_without_supervisor_has_a_short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VINERY_DRAIN_S", "600")
    assert heartbeats.drain_limit_s() == 600

    monkeypatch.setattr(parent, "_watched", [os.getppid() + 1])
    assert heartbeats.drain_limit_s() < parent.GRACE_S - heartbeats.CLOSE_WITHIN_S
    monkeypatch.setenv("VINERY_DRAIN_S", "soon")
    with pytest.raises(SettingError, match="VINERY_DRAIN_S"):
        heartbeats.drain_limit_s()


_RETRY = (
    "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError("
    "'Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')'"
)
_NOTHING_FOUND = """\
ERROR: Could not find a version that satisfies the requirement openvino==2026.4.1 (from vinery)
ERROR: No matching distribution found for openvino==2026.4.1"""


def make_install(folder: Path, output: str, status: int) -> subprocess.CompletedProcess[str]:
    """Run it with a pip that prints this and ends with this status."""
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "output").write_text(output)
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\ncat "{folder}/output"\nexit {status}\n')
    python.chmod(0o755)
    return scripts.make("install", f"VENV={venv}")


@table(
    "output, reason, cure",
    [
        (f"{_RETRY}\n{_NOTHING_FOUND}", "pip could not reach the package index", "PIP_FIND_LINKS="),
        ("ERROR: [Errno 28] No space left on device", "the disk is full", "Free some space"),
        (
            _NOTHING_FOUND,
            "the package index has no openvino==2026.4.1 for this Python and this platform",
            "PYTHON=python3.12",
        ),
        (
            "SSLError(SSLCertVerificationError('CERTIFICATE_VERIFY_FAILED'))",
            "the certificate of the package index is not trusted",
            "PIP_CERT",
        ),
        ("ERROR: something new", "see pip's lines below", "PIP_FIND_LINKS="),
    ],
)
def test_a_failed_install_shows_a_cure(tmp_path: Path, output: str, reason: str, cure: str) -> None:
    result = make_install(tmp_path, f"Collecting django\n{output}\n", 1)

    assert result.returncode != 0
    assert f"vinery: the installation failed: {reason}" in result.stderr
    assert cure in result.stderr
    assert not (tmp_path / "venv" / "runtime.stamp").exists()
