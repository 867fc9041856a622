"""`vinery backup` and `vinery restore` between two homes."""

import gzip
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import prepared_home, stores
from tests.accounts.usage_builders import admission, settlement
from tests.conftest import REPOSITORY, clean_environment
from tests.platform_ import scripts
from tests.platform_.scripts import vinery
from vinery.backup import archive
from vinery.backup.archive import Manifest
from vinery_accounts.usage.entries import encode
from vinery_accounts.usage.journal import Journal

pytestmark = pytest.mark.skipif(stores.IS_SCALED, reason="both homes would have one server")

RELEASES = REPOSITORY / "tests" / "releases"

_RECOVER = """
import django; django.setup()
from django.conf import settings
from vinery_accounts.models import UsageRecord
from vinery_accounts.usage.recovery import recover_orphans
recover_orphans(settings.HOME.usage)
print(sorted(UsageRecord.objects.values_list("request_id", "outcome")))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    clean = clean_environment()
    return clean | prepared_home.copy_to(tmp_path / "home", clean)


def test_usage_in_the_journal_of_a_running_process_counts_once_after_a_restore(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with closing(Journal.create(tmp_path / "home" / "usage")) as journal:
        journal.allocate(100_000)
        for entry in (admission("over"), settlement("over"), admission("open")):
            journal.append(encode(entry))
        made = vinery("backup", environment=environment, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    [archive] = tmp_path.glob("vinery-backup-*.tar.gz")
    assert re.fullmatch(r"vinery-backup-\d{8}T\d{6}Z\.tar\.gz", archive.name)
    assert archive.stat().st_mode & 0o777 == 0o600

    other = environment | {"VINERY_HOME": str(tmp_path / "other")}
    restored = vinery("restore", str(archive), environment=other, cwd=tmp_path)

    assert restored.returncode == 0, restored.stderr
    recovered = scripts.run_python(
        "-c", _RECOVER, environment=other | {"DJANGO_SETTINGS_MODULE": "vinery.settings"}
    )
    assert recovered.stdout.strip() == "[('open', 'interrupted'), ('over', 'ok')]"
    keys, restored_keys = (vinery("key", "list", environment=each) for each in (environment, other))
    assert keys.stdout == restored_keys.stdout != ""


def test_a_home_in_use_is_not_replaced(environment: dict[str, str], tmp_path: Path) -> None:
    made = vinery("backup", "a.tar.gz", environment=environment, cwd=tmp_path)
    again = vinery("backup", "a.tar.gz", environment=environment, cwd=tmp_path)

    with closing(Journal.create(tmp_path / "home" / "usage")):
        refused = vinery("restore", "a.tar.gz", "--yes", environment=environment, cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert refused.returncode == 2
    assert "uses the home folder" in refused.stderr


def test_what_is_outside_of_the_home_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "elsewhere.toml"
    config.write_text("web_workers = 1\n")
    pepper = {"VINERY_KEY_PEPPER_2": "x" * 40, "VINERY_CONFIG": str(config)}

    made = vinery("backup", "a.tar.gz", environment=environment | pepper, cwd=tmp_path)

    assert "Not in the backup: VINERY_KEY_PEPPER_2, which the environment sets." in made.stdout
    assert f"Not in the backup: the configuration file {config}." in made.stdout


def test_a_backup_of_an_older_version_is_upgraded(
    environment: dict[str, str], tmp_path: Path
) -> None:
    expected = json.loads((RELEASES / "0.1.json").read_text())
    state = tmp_path / "state"
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "django_secret_key").write_text(expected["secret_key"])
    (state / "secrets" / "key_pepper_1").write_text(expected["pepper"])
    with closing(sqlite3.connect(state / "vinery.sqlite3")) as database:
        dump = gzip.decompress((RELEASES / "0.1.sql.gz").read_bytes()).decode()
        database.executescript(dump)
        rows = database.execute("SELECT app, name FROM django_migrations").fetchall()
    manifest = Manifest("0.0.9", datetime.now(UTC), "sqlite", tuple(map(".".join, rows)))
    archive.write(state, tmp_path / "old.tar.gz", manifest, replace=False)

    home = environment | {"VINERY_HOME": str(tmp_path / "other")}
    restored = vinery("restore", "old.tar.gz", environment=home, cwd=tmp_path)

    assert restored.returncode == 0, restored.stderr
    assert "The audit log is intact" in restored.stdout
    assert "laptop" in vinery("key", "list", environment=home).stdout
