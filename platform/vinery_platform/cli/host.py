"""`vinery config`, `env`, `devices` and `reload`: the settings, the first key, the devices and the
processes of this host.

None of them needs Django. `vinery devices` needs no home folder, either: a short process asks
OpenVINO.
"""

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from vinery_platform.cli.shape import Failure, add_json, print_rows
from vinery_platform.config import config_file, credentials, env
from vinery_platform.config.home import Home
from vinery_platform.config.setting_table import FILE_SUFFIX, SETTINGS, Setting
from vinery_platform.processes import running_server
from vinery_platform.processes.heartbeats import RELOAD
from vinery_serving.models import devices
from vinery_serving.models.devices import Device
from vinery_serving.node import device_probe

_HEADS: Final = ("setting", "value", "source")
_HIDDEN: Final = "(hidden)"


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path", action="store_true", help="print the paths of the configuration files instead"
    )
    add_json(parser)


def run_config(arguments: argparse.Namespace) -> int:
    """Print all settings, or the files. Raises `SettingError` for a file that cannot be used."""
    if arguments.path:
        return _print_paths()
    print_rows(list(_rows()), _HEADS, as_json=arguments.json)
    return 0


def _print_paths() -> int:
    files = config_file.apply()
    for file in files:
        print(file.path)
    if not files:
        paths = " or ".join(map(str, config_file.candidates()))
        print(f"vinery: There is no configuration file. It would be {paths}.", file=sys.stderr)
    return 0


def _rows() -> Iterator[dict[str, str]]:
    """One row for each setting of the table, and then for the others that are set."""
    found = {setting.name: row for setting, row in map(_set_row, config_file.set_settings())}
    for setting in SETTINGS:
        if setting.name in found:
            yield found.pop(setting.name)
        elif setting.name + FILE_SUFFIX not in found:
            yield _default_row(setting)
    yield from found.values()


def _set_row(found: tuple[Setting, str]) -> tuple[Setting, dict[str, str]]:
    setting, value = found
    file = env.origin_of(setting.name)
    row = {
        "setting": setting.name,
        "value": _HIDDEN if setting.is_secret else value,
        "source": "environment" if file is None else str(file),
    }
    return setting, row


def _default_row(setting: Setting) -> dict[str, str]:
    is_home = setting.name == "VINERY_HOME"
    value = str(Home.from_env().path) if is_home else setting.default
    return {"setting": setting.name, "value": value, "source": "default"}


# -- The address and the first key, as lines for a shell: OpenAI's clients read these variables.

_NAMES: Final = ("OPENAI_BASE_URL", "OPENAI_API_KEY")


def run_env(_: argparse.Namespace) -> int:
    """Print `export` lines. Raises `Failure` without stored credentials, and `SettingError`."""
    home = Home.from_env()
    known = credentials.read(home.bootstrap_file)
    if known is None and not home.path.exists():
        raise home.missing()
    if known is None:
        raise Failure(
            f"{home.bootstrap_file} was deleted, and with it the first key. Create another one: "
            "vinery key create --name NAME"
        )
    server = running_server.read(home)
    base_url = known.base_url if server is None else server.base_url
    for name, value in zip(_NAMES, (f"{base_url}/v1", known.api_key), strict=True):
        print(f"export {name}={shlex.quote(value)}")
    return 0


# -- The devices of this machine

_DEVICE_HEADS: Final = ("device", "name", "memory", "driver")


def add_devices(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run_devices(arguments: argparse.Namespace) -> int:
    """List the devices. Raises `Failure` if they cannot be found, and `SettingError`."""
    run_dir = Home.from_env().run
    try:
        found = asyncio.run(device_probe.find())
    except device_probe.ProbeFailed as error:
        raise Failure(str(error)) from error
    with suppress(OSError):  # there is no home yet, or it is full
        # A file of another user could not be read by Vinery.
        if run_dir.stat().st_uid == os.getuid():
            devices.write(run_dir, found)
    print_rows(
        [_device_row(each, as_json=arguments.json) for each in found],
        _DEVICE_HEADS,
        as_json=arguments.json,
    )
    return 0


def _device_row(device: Device, *, as_json: bool) -> dict[str, Any]:
    row = {"device": device.name, "name": device.full_name, "driver": device.driver}
    if as_json:
        return row | {
            "memory_bytes": device.memory_bytes,
            "properties": list(device.properties),
        }
    return row | {"memory": _in_gib(device.memory_bytes)}


def _in_gib(num_bytes: int | None) -> str | None:
    return None if num_bytes is None else f"{num_bytes / 2**30:.1f} GiB"


# -- New web processes. The supervisor of this home is asked by a signal: each new process takes the
# connections before the old one stops to, and the old one ends with its last request.


def run_reload(_arguments: argparse.Namespace) -> int:
    """Raises `Failure` if no `vinery up` runs with this home."""
    home = Home.from_env()
    pid = home.supervisor_pid()
    try:
        if pid is not None:
            os.kill(pid, RELOAD)
    except ProcessLookupError:  # it has ended meanwhile
        pid = None
    if pid is None:
        raise Failure(f"`vinery up` does not run with the home folder {home.path}.")
    print(
        f"vinery: process {pid} replaces its web processes one after the other. Its log has a "
        "line for each; running requests finish first."
    )
    return 0
