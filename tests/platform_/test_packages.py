"""The wheel has all that Vinery serves, the image is built from the same files, and
`requirements.lock` has what pyproject.toml asks for."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY

DOCKERFILE = (REPOSITORY / "docker" / "Dockerfile").read_text(encoding="utf-8")
# Folders of the repository, and where the wheel has them.
FOLDERS = {
    "platform/vinery": "vinery",
    "serving": "vinery_serving",
    "accounts": "vinery_accounts",
    "templates": "vinery/templates",
    "models/tiny-chat": "vinery/models/tiny-chat",
}


def copied_paths() -> list[str]:
    """What the Dockerfile copies from the repository."""
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


def test_the_wheel_has_every_file_that_a_clone_serves_and_no_name_that_others_may_have(
    wheel: zipfile.ZipFile,
) -> None:
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
        *("vinery", "vinery_serving", "vinery_accounts")
    }


def test_an_editable_install_copies_no_code(tmp_path: Path) -> None:
    build = "import hatchling.build, sys; hatchling.build.build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=REPOSITORY, check=True)
    [path] = tmp_path.glob("*.whl")

    files = [name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name]

    assert files == ["_vinery.pth"]


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


def test_the_locked_versions_are_in_the_ranges_of_the_project() -> None:
    versions = locked()
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["build"]):
        requirement = Requirement(text)
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{text}: {version}"


def test_each_locked_archive_has_a_hash_and_none_an_address() -> None:
    assert len(ENTRIES) == len(locked()) > 50
    for entry in ENTRIES:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}(\s|$)", entry), entry
    assert "://" not in LOCK
    assert "index" not in LOCK
