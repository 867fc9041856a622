"""`vinery config`: the settings in force, and where each of them is set. Secrets are hidden."""

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from vinery_platform.cli.shape import add_json, print_rows
from vinery_platform.config import config_file, env
from vinery_platform.config.home import Home
from vinery_platform.config.setting_table import FILE_SUFFIX, SETTINGS, Setting

_HEADS: Final = ("setting", "value", "source")
_HIDDEN: Final = "(hidden)"


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path", action="store_true", help="print the paths of the configuration files instead"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
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
