"""A home folder that `vinery prepare` has prepared once, copied for each platform under test.

Migrations, secrets and the first key are the same for nearly all platforms that tests start,
and making them costs more than the rest of a start. Tests of the first start itself start
with an empty folder instead.
"""

import fcntl
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests import stores

_TIMEOUT_S: Final = 120.0

# Options of the model: where a processor computes in bf16, a text depends on what else is in the
# batch.
EXACT = {"plugin": {"INFERENCE_PRECISION_HINT": "f32"}}


def copy_to(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Make `home` a prepared home, unless it exists.

    Returns the variables that name the home and its servers. `environment` is that of a
    process without settings of Vinery.
    """
    if not home.exists():
        template = _template(frozenset(environment.items()))
        shutil.copytree(template / "home", home)
        return stores.environment_of(home, template=_database_of(template))
    return stores.environment_of(home)


@cache
def _template(environment: frozenset[tuple[str, str]]) -> Path:
    """The folder of the prepared home. The first worker prepares it, the others wait."""
    folder = Path(tempfile.gettempdir()) / "prepared"  # of this run of the tests
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "servers.json"
        if not done.exists():
            done.write_text(json.dumps(_prepare(folder / "home", dict(environment))))
    return folder


def _prepare(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    servers = stores.environment_of(home)
    exact = "plugin=" + json.dumps(EXACT["plugin"])
    for words in (("prepare",), ("model", "change", "tiny-chat", "--option", exact)):
        subprocess.run(
            [sys.executable, "-m", "vinery_platform.cli", *words],
            env={**environment, **servers, "VINERY_PORT": "0"},
            check=True,
            timeout=_TIMEOUT_S,
        )
    return servers


def _database_of(template: Path) -> str | None:
    servers: dict[str, str] = json.loads((template / "servers.json").read_text())
    return servers.get("DATABASE_URL")
