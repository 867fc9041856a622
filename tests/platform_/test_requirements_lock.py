"""`requirements.lock` has what pyproject.toml asks for, and a hash for each archive."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY

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
