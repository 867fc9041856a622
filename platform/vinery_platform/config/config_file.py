"""`vinery.toml`: settings in a file, so that every command and process finds the same settings.

Two files count, and the environment overrides both: `vinery.toml` in the home folder, and a file
that may name the home. The second file is given by `--config` or VINERY_CONFIG, and overrides the
first; else the file of the user or the system counts, and the first overrides it.

`apply` copies the settings of the files to the environment. So all readers of settings, and all
child processes, need to know only the environment.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from vinery_platform.config import env, setting_table
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home
from vinery_platform.config.setting_table import FILE_SUFFIX, Setting, key_of

NAME: Final = "vinery.toml"
VARIABLE: Final = "VINERY_CONFIG"
_SYSTEM: Final = Path("/etc/vinery") / NAME
_HOME: Final = "VINERY_HOME"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    path: Path
    values: dict[str, str]  # by variable


def apply() -> tuple[ConfigFile, ...]:
    """Set the variables that the environment lacks and a file has.

    Returns the files that exist, the one that overrides the others first. Raises `SettingError`
    for a file that cannot be used. Safe to repeat.
    """
    outer = _outer_file()
    if outer is not None:
        _set(outer, {_HOME})
    files = [] if outer is None else [outer]
    path = Home.from_env().path / NAME
    if _exists(path) and (outer is None or outer.path != path):
        files.insert(0, read(path, may_name_home=False))
    if env.text(VARIABLE):
        files.reverse()
    for file in files:
        _set(file, set(file.values))
    return tuple(files)


def candidates() -> tuple[Path, ...]:
    """The paths at which this process looks for files, whether they exist or not."""
    inner = Home.from_env().path / NAME
    named = env.text(VARIABLE)
    return (Path(named), inner) if named else (inner, *_standard_paths())


def read(path: Path, *, may_name_home: bool = True) -> ConfigFile:
    """Read a file. Raises `SettingError` if it is missing, unreadable, not TOML, has an unknown
    key, or has a secret that others may read."""
    document = _document(path)
    values = {}
    for key, value in document.items():
        setting = setting_table.with_key(key)
        if setting is None:
            near = get_close_matches(
                key.lower().removeprefix("vinery_"), setting_table.known(), n=1
            )
            hint = f"Did you mean {near[0]}?" if near else "See: vinery config"
            raise SettingError(f"{path} has the unknown key {key}. {hint}")
        if setting.name == _HOME and not may_name_home:
            raise SettingError(
                f"home in {path} cannot be used: this file is in the home. Set it in the file of "
                "--config, of the user or of the system."
            )
        values[setting.name] = _text(setting, key, value, path)
    _check_mode(path, values)
    return ConfigFile(path, values)


def _outer_file() -> ConfigFile | None:
    if named := env.text(VARIABLE):
        path = Path(named).expanduser().resolve()
        os.environ[VARIABLE] = str(path)  # for processes in other folders
        return read(path)
    return next((read(path) for path in _standard_paths() if _exists(path)), None)


def _standard_paths() -> tuple[Path, ...]:
    from platformdirs import user_config_path  # 10 ms, for nothing with VINERY_CONFIG

    return (user_config_path("vinery", appauthor=False) / NAME, _SYSTEM)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # such as the home of another user: other messages name it
        return False


def _document(path: Path) -> dict[str, Any]:
    import tomllib  # 3 ms, for nothing without a file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(
            f"There is no configuration file {path}. Correct --config or {VARIABLE}."
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingError(f"The configuration file {path} cannot be read: {reason}.") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingError(f"{path} is not valid TOML: {error}.") from error


def _text(setting: Setting, key: str, value: object, path: Path) -> str:
    """A TOML value as the variable would have it. Raises `SettingError`."""
    match value:
        case str() if "\0" in value:
            pass
        case str() if setting.is_path and value:
            return str((path.parent / Path(value).expanduser()).resolve())
        case str() | bool() | int() | float():
            return _word(value)
        # An empty list would be the default, as an empty text is.
        case list() if value and all(
            isinstance(each, str | int) and "\0" not in str(each) for each in value
        ):
            return ",".join(map(_word, value))
    raise SettingError(
        f"{key} in {path} has a value that no setting has. Write a text, a number, true, false or "
        "a list of one or more texts or numbers."
    )


def _word(value: str | float) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value.strip() if isinstance(value, str) else str(value)


def _check_mode(path: Path, values: dict[str, str]) -> None:
    """Raises `SettingError` if other users may read a secret in the file. A file of another user,
    such as root, may be readable for the group, through which this user reads it."""
    settings = {name: setting_table.with_key(key_of(name)) for name in values}
    secrets = [key_of(name) for name, each in settings.items() if each and each.is_secret]
    if not secrets:
        return
    status = path.stat()
    forbidden = 0o077 if status.st_uid == os.getuid() else 0o007
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise SettingError(
            f"{path} holds a secret ({', '.join(sorted(secrets))}), and other users may read it. "
            f"Run: chmod 600 {path}"
        )


def _set(file: ConfigFile, names: set[str]) -> None:
    """Set these variables of the file, unless the environment has them, or the other way to give
    the same secret."""
    bases = {name: name.removesuffix(FILE_SUFFIX) for name in file.values}
    given = {name for name, base in bases.items() if env.text(base) or env.text(base + FILE_SUFFIX)}
    for name in names & file.values.keys():
        value = file.values[name]
        if name not in given:
            os.environ[name] = value
        if os.environ.get(name) == value:
            env.note_origin(name, file.path)


def set_settings() -> Iterator[tuple[Setting, str]]:
    """Each setting that the environment or a file sets, with its value, secret or not."""
    for name, value in sorted(os.environ.items()):
        setting = setting_table.with_key(key_of(name)) if value.strip() else None
        if setting is not None and setting.name == name:
            yield setting, value
