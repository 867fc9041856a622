"""Checks of the settings themselves: files and names."""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from vinery_platform.config import config_file, setting_table
from vinery_platform.config.env import SettingError
from vinery_platform.config.setting_table import key_of
from vinery_platform.doctor.finding import Finding, failure, ok, warning

# How variables of Vinery begin that are no settings.
_OTHERS: Final = ("VINERY_API_KEY", "VINERY_CONFIG", "VINERY_PROCESS", "VINERY_TEST_")


def files() -> Iterator[Finding]:
    try:
        found = config_file.apply()
    except SettingError as error:
        yield failure("configuration", str(error), "Correct the file. See: vinery config --help")
        return
    paths = ", ".join(str(file.path) for file in found)
    yield ok("configuration", paths or "There is no file: the environment and defaults are used.")


def names() -> Iterator[Finding]:
    """Variables that look like settings, and are none."""
    known = [setting.name for setting in setting_table.known().values()]
    for name in sorted(os.environ):
        is_ours = name.startswith("VINERY_") and not name.startswith(_OTHERS)
        if is_ours and setting_table.with_key(key_of(name)) is None:
            near = get_close_matches(name, known, n=1)
            cure = f"Did you mean {near[0]}?" if near else "Unset it. See: vinery config"
            yield warning("environment", f"{name} is no setting, and is ignored.", cure)


CHECKS: Final = (files, names)
