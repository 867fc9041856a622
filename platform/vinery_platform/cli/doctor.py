"""`vinery doctor`: checks this machine, the home, the settings and the stores, and names cures.

It works without a home and without a running server, and creates nothing.
"""

import argparse
import asyncio
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from vinery_platform.cli.shape import add_json, json_of, leave_pool, load_django, print_line
from vinery_platform.config import config_file, env, secret_files, setting_table
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home, RunningServer
from vinery_platform.operations import backup
from vinery_platform.processes.listening import Address, listen
from vinery_serving.models.hub.machine import memory_limit
from vinery_serving.node import device_probe
from vinery_serving.processes import confine

_PACKAGES: Final = ("openvino", "openvino-genai", "openvino-tokenizers")
_DRIVERS: Final = {
    "GPU": "Install Intel's GPU runtime (intel-opencl-icd, and libze-intel-gpu1 for newer GPUs).",
    "NPU": "Install Intel's NPU driver: https://github.com/intel/linux-npu-driver/releases",
}
_LEAST_MEMORY_BYTES: Final = 2 << 30
# Limits by the minute bear this difference of clocks.
_MAX_SKEW_S: Final = 2.0
_REDIS_TIMEOUT_S: Final = 3.0
# How variables of Vinery begin that are no settings.
_OTHERS: Final = ("VINERY_API_KEY", "VINERY_CONFIG", "VINERY_PROCESS", "VINERY_TEST_")


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but not fully
    FAILURE = "failure"  # does not work


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    text: str
    cure: str = ""  # what to do about it; "" if nothing is to be done


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def failure(check: str, text: str, cure: str) -> Finding:
    return Finding(check, Level.FAILURE, text, cure)


def warn_unless(check: str, text: str, cure: str, *, is_good: bool) -> Finding:
    return ok(check, text) if is_good else Finding(check, Level.WARNING, text, cure)


add_doctor = add_json


def run_doctor(arguments: argparse.Namespace) -> int:
    """Check OpenVINO, drivers, memory, disk, port, secrets, settings, database, Redis and clocks.
    Each warning and failure has its cure. The exit status is 1 if there is a failure. Needs no home
    and no running server."""
    found = []
    for finding in _findings():
        found.append(finding)
        if not arguments.json:
            print_line(f"{finding.level.value.ljust(9)}{finding.check.ljust(16)}{finding.text}")
            if finding.cure:
                print_line(f"{' ' * 25}cure: {finding.cure}")
    counts = Counter(finding.level for finding in found)
    if arguments.json:
        print(json_of([asdict(finding) for finding in found]))
    else:
        num_ok, num_warnings, num_failures = (counts[level] for level in Level)
        print_line(f"{num_ok} ok, {num_warnings} warnings, {num_failures} failures")
    return int(counts[Level.FAILURE] > 0)


def _findings() -> Iterator[Finding]:
    """Yield findings as they are made: of files, the machine, the home, and last the stores."""
    yield from _all((configuration, environment, openvino, devices, memory, confinement))
    yield from _all((home, disk, secrets, port))
    try:
        load_django()
    except SettingError as error:
        yield failure("settings", str(error), "vinery config shows where each setting is set.")
        return
    yield ok("settings", "All values can be used.")
    yield from _all((system_checks, database, redis, public_url))


def _all(checks: Iterable[Callable[[], Iterator[Finding]]]) -> Iterator[Finding]:
    """The findings of these checks. A check that cannot be made has failed."""
    for check in checks:
        try:
            yield from check()
        except (SettingError, OSError) as error:
            yield failure(check.__name__.replace("_", " "), str(error), "See: vinery config")


def configuration() -> Iterator[Finding]:
    paths = ", ".join(str(file.path) for file in config_file.apply())
    yield ok("configuration", paths or "There is no file: the environment and defaults are used.")


def environment() -> Iterator[Finding]:
    known = [setting.name for setting in setting_table.known().values()]
    for name in sorted(os.environ):
        is_ours = name.startswith("VINERY_") and not name.startswith(_OTHERS)
        if is_ours and setting_table.with_key(setting_table.key_of(name)) is None:
            near = get_close_matches(name, known, n=1)
            cure = f"Did you mean {near[0]}?" if near else "Unset it. See: vinery config"
            text = f"{name} is no setting, and is ignored."
            yield warn_unless("environment", text, cure, is_good=False)


def openvino() -> Iterator[Finding]:
    try:
        versions = {name: metadata.version(name) for name in _PACKAGES}
    except metadata.PackageNotFoundError as error:
        yield failure("openvino", f"{error}.", "Install Vinery again.")
        return
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    is_one = len({tuple(version.split(".")[:3]) for version in versions.values()}) == 1
    cure = "The releases differ: install Vinery again."
    yield warn_unless("openvino", text, cure, is_good=is_one)


def devices() -> Iterator[Finding]:
    """The devices of OpenVINO. A short process asks, because a driver may crash or hang."""
    try:
        found = asyncio.run(device_probe.find())
    except device_probe.ProbeFailed as error:
        cure = "Restart the machine, and install the device's driver and Vinery again."
        yield failure("devices", str(error), cure)
        return
    yield ok("devices", ", ".join(map(str, found)))
    names = [each.name for each in found]
    yield _driver("GPU", sorted(Path("/dev/dri").glob("renderD*")), names)
    yield _driver("NPU", sorted(Path("/dev/accel").glob("accel*")), names)


def _driver(kind: str, nodes: Sequence[Path], names: Iterable[str]) -> Finding:
    """Whether OpenVINO finds the device whose files the kernel has."""
    check = kind.lower()
    if not nodes:
        return ok(check, f"This machine has no {kind} that the kernel knows.")
    if closed := [path for path in nodes if not os.access(path, os.R_OK | os.W_OK)]:
        cure = "sudo usermod -aG render $USER, then sign in again. In a container, pass the "
        cure += "device and the group of its file."
        return warn_unless(check, f"This user may not open {closed[0]}.", cure, is_good=False)
    is_found = any(each.split(".")[0] == kind for each in names)
    text = f"OpenVINO finds {'the' if is_found else 'no'} {kind} of {nodes[0]}."
    return warn_unless(check, text, _DRIVERS[kind], is_good=is_found)


def confinement() -> Iterator[Finding]:
    """The parts by which the kernel confines worker processes and engines."""
    held = confine.available()
    missing = sorted(frozenset(confine.Part) - held)
    text = f"In force: {', '.join(sorted(held))}{confine.OF_ENGINES}."
    cure = "Use a newer kernel, see docs/guides/security.md: Linux 6.12 has all parts."
    text += f" Missing: {', '.join(missing)}." if missing else ""
    yield warn_unless("confinement", text, cure, is_good=not missing)


def memory() -> Iterator[Finding]:
    import psutil  # 10 ms

    total_bytes = memory_limit()
    free_bytes = min(psutil.virtual_memory().available, total_bytes)
    text = f"{free_bytes / 2**30:.1f} of {total_bytes / 2**30:.1f} GiB are available."
    cure = "End other programs, or serve a smaller or more quantised model."
    yield warn_unless("memory", text, cure, is_good=free_bytes >= _LEAST_MEMORY_BYTES)


def home() -> Iterator[Finding]:
    path = Home.from_env().path
    above = _existing(path)
    if not above.is_dir() or not os.access(above, os.R_OK | os.W_OK | os.X_OK):
        text = f"{above} is no folder that this user may write to."
        cure = "Run this as the user that runs `vinery up`, or set VINERY_HOME to another folder."
        yield failure("home", text, cure)
    elif above != path:
        yield ok("home", f"{path} does not exist yet: `vinery up` makes it.")
    else:
        is_closed = not stat.S_IMODE(path.stat().st_mode) & 0o077
        text = f"{path}, which {'no other' if is_closed else 'another'} user may open."
        yield warn_unless("home", text, f"chmod 700 {path}", is_good=is_closed)


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def disk() -> Iterator[Finding]:
    path = _existing(Home.from_env().path)
    free_bytes = shutil.disk_usage(path).free
    wanted_bytes = 2**20 * env.integer("VINERY_MIN_FREE_DISK_MB")
    text = f"{free_bytes / 2**30:.1f} GiB are free at {path}."
    cure = "Free some space, or set VINERY_HOME to a larger disk."
    yield warn_unless("disk", text, cure, is_good=free_bytes >= wanted_bytes)


def secrets() -> Iterator[Finding]:
    """Whether they are there. That others may not read them is a matter of the home."""
    home = Home.from_env()
    if not home.path.exists():
        return
    try:
        secret_files.require(home)
        yield ok("secrets", "They are there.")
    except SettingError as error:
        # A home may hold a configuration file before Vinery has run with it.
        parts = (home.secrets, home.bootstrap_file, home.path / backup.SQLITE)
        if any(part.exists() for part in parts):
            yield failure("secrets", str(error), "vinery prepare, or restore them from a backup")
        else:
            yield ok("secrets", "There are none yet: `vinery up` makes them.")


def port() -> Iterator[Finding]:
    server = RunningServer.read(Home.from_env())
    if server is not None:
        yield ok("port", f"Vinery runs at {server.base_url} (process {server.pid}).")
        return
    address = Address.from_env()
    with listen(address) as socket:
        number = address.port or socket.getsockname()[1]
    yield ok("port", f"{number} on {address.host} is free.")


# -- Values of settings, and the stores. These need Django.


def system_checks() -> Iterator[Finding]:
    """Findings of `manage.py check` about settings."""
    from django.core.checks import ERROR, run_checks

    from vinery_platform.web.apps import VINERY

    for each in run_checks(tags=[VINERY]):
        level = Level.FAILURE if each.level >= ERROR else Level.WARNING
        yield Finding(each.id or "", level, each.msg, each.hint or "")


def database() -> Iterator[Finding]:
    from django.db import Error as DatabaseError
    from django.db import connection

    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite" and not Path(name).is_file():
        yield ok("database", "There is none yet: `vinery up` makes it.")
        return
    leave_pool()
    try:
        with connection.cursor() as cursor:
            yield from _server_of(cursor, connection.vendor)
        yield _schema()
    except DatabaseError as error:
        cure = "Start the server, or correct DATABASE_URL; restore a damaged file from a backup."
        yield failure("database", f"It cannot be used: {' '.join(str(error).split())}", cure)


def _server_of(cursor: Any, vendor: str) -> Iterator[Finding]:
    if vendor == "sqlite":
        cursor.execute("PRAGMA journal_mode")
        [mode] = cursor.fetchone()
        cure = "Put the home on a local disk: WAL needs shared memory."
        yield warn_unless("database", f"Journal mode {mode}.", cure, is_good=mode == "wal")
        return
    cursor.execute("SELECT version(), extract(epoch FROM clock_timestamp())")
    version, now_s = cursor.fetchone()
    yield ok("database", f"{version.partition(',')[0]} answers.")
    yield _skew("database clock", float(now_s) - time.time())


def _skew(check: str, skew_s: float) -> Finding:
    text = f"It differs from that of this machine by {skew_s:+.1f} s."
    cure = "Let NTP set the clocks of both: timedatectl set-ntp true"
    return warn_unless(check, text, cure, is_good=abs(skew_s) <= _MAX_SKEW_S)


def _schema() -> Finding:
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    if newer := backup.newer_migration(executor):
        text = f"The database is of a newer version: {newer} is unknown here."
        cure = "Run the newer version of Vinery, or restore a backup of this one."
        return failure("schema", text, cure)
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    text = f"{len(pending)} migrations are pending." if pending else "It is up to date."
    cure = "vinery up applies them, and so does vinery prepare."
    return warn_unless("schema", text, cure, is_good=not pending)


def redis() -> Iterator[Finding]:
    from django.conf import settings

    if not settings.VINERY_REDIS_URL:
        yield ok("redis", "It is not used.")
        return
    import redis as client

    try:
        timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), _REDIS_TIMEOUT_S)
        seconds, microseconds = client.Redis.from_url(settings.VINERY_REDIS_URL, **timeouts).time()
    except (client.RedisError, OSError) as error:
        yield failure("redis", f"It does not answer: {error}", "Start it, or correct REDIS_URL.")
        return
    yield ok("redis", "It answers.")
    yield _skew("redis clock", seconds + microseconds / 1e6 - time.time())


def public_url() -> Iterator[Finding]:
    from django.conf import settings

    url, address = settings.VINERY_PUBLIC_URL, settings.VINERY_ADDRESS
    text, cure = f"{url or 'none'}, on {address.host}", ""
    if not address.is_loopback and not url.startswith("https://"):
        text += " without TLS: passwords and keys cross the network in the clear."
        cure = "Put a proxy with TLS in front and set VINERY_PUBLIC_URL to its https URL"
    elif not address.is_loopback and all(
        network.is_loopback for network in settings.VINERY_TRUSTED_PROXIES
    ):
        text += ": only proxies of this machine are trusted, but others may connect."
        cure = "Set VINERY_TRUSTED_PROXIES to the proxy's network"
    yield warn_unless("public URL", text, f"{cure}, or VINERY_HOST=127.0.0.1.", is_good=not cure)
