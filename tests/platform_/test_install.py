"""`make install` shows why pip has failed, and what to do."""

import subprocess
from pathlib import Path

from tests.platform_ import scripts
from tests.tables import table

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
def test_a_failed_installation_shows_its_reason_and_a_cure(
    tmp_path: Path, output: str, reason: str, cure: str
) -> None:
    result = make_install(tmp_path, f"Collecting django\n{output}\n", 1)

    assert result.returncode != 0
    assert f"vinery: the installation failed: {reason}" in result.stderr
    assert cure in result.stderr
    assert not (tmp_path / "venv" / "runtime.stamp").exists()


def test_the_last_lines_of_pip_are_shown_once(tmp_path: Path) -> None:
    result = make_install(tmp_path, "ERROR: same\nERROR: same\nCollecting x\nERROR: other\n", 1)

    assert result.stderr.count("ERROR: same") == 1
    assert "ERROR: other" in result.stderr
    assert "Collecting x" not in result.stderr


def test_a_good_installation_is_not_repeated(tmp_path: Path) -> None:
    result = make_install(tmp_path, "Successfully installed vinery\n", 0)

    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "venv" / "runtime.stamp").exists()


def test_help_has_the_lines_for_users_first() -> None:
    users, _, developers = scripts.make("help").stdout.partition("To work on it:")

    assert "make up " in users
    assert "make test " in developers
    assert "make test " not in users
