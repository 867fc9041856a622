"""The folder in which a backup is prepared holds secrets, and stays nowhere."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.platform_ import scripts
from vinery.backup.workspace import workspace

_KILLED = """
import os, signal, sys
from pathlib import Path
from vinery.backup.workspace import workspace
with workspace(Path(sys.argv[1])) as state:
    (state / "secret").write_text("secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_backup_leaves_a_folder_that_the_next_one_removes(tmp_path: Path) -> None:
    killed = scripts.run_python("-c", _KILLED, str(tmp_path))
    [left] = tmp_path.iterdir()
    (tmp_path / ".vinery-backup-x" / "state").mkdir(parents=True)  # its removal was interrupted
    assert killed.returncode == -signal.SIGKILL
    assert left.stat().st_mode & 0o777 == 0o700

    with workspace(tmp_path) as state:
        assert list(tmp_path.iterdir()) == [state.parent] != [left]
        assert list(state.iterdir()) == []

    assert list(tmp_path.iterdir()) == []


def test_a_backup_leaves_those_alone_that_run_beside_it(tmp_path: Path) -> None:
    (tmp_path / ".vinery-backup-notes.txt").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".vinery-backup-link").symlink_to(tmp_path / "elsewhere")

    with workspace(tmp_path) as first, workspace(tmp_path) as second:
        assert first.is_dir() and second.is_dir()
        assert list((tmp_path / "elsewhere").iterdir()) == []

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {".vinery-backup-notes.txt", ".vinery-backup-link", "elsewhere"}
