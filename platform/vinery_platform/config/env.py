"""Typed readers of environment variables, for the settings of `setting_table`. An unset or empty
variable gives the default. `config_file` sets those that a configuration file has.

Standard library only, because the supervisor reads its settings without Django.
"""

import os
import re
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from socket import gethostname

from vinery_platform.config.setting_table import key_of, named
from vinery_serving.core.field_limits import HOST_LABEL

_SWITCHES = {
    **dict.fromkeys(("1", "on", "true", "yes"), True),
    **dict.fromkeys(("0", "off", "false", "no"), False),
}
_MIN_TOKEN_LENGTH = 16
# The configuration files from which variables were set.
_origins: dict[str, Path] = {}


class SettingError(Exception):
    """A setting cannot be used. The message names the variable, or the key in a configuration
    file, and the remedy."""


def note_origin(name: str, file: Path) -> None:
    _origins[name] = file


def origin_of(name: str) -> Path | None:
    """The configuration file from which a variable was set; None for the environment."""
    return _origins.get(name)


def _label(name: str, value: object = None) -> str:
    """The setting as the user knows it: a variable or a key of a file, and the value unless the
    setting is a secret."""
    file = origin_of(name)
    if value is None:
        return name if file is None else f"{key_of(name)} in {file}"
    return f"{name}={value}" if file is None else f"{key_of(name)} = {value} in {file}"


def text(name: str, default: str = "") -> str:
    """The variable's value without leading and trailing space."""
    return os.environ.get(name, "").strip() or default


def _words_of(name: str) -> Collection[str]:
    values = named(name).values
    assert isinstance(values, tuple)
    return values


def on_off(name: str) -> bool:
    """A switch. Raises `SettingError` for any other word."""
    word = text(name, named(name).default).lower()
    if word not in _SWITCHES:
        raise SettingError(f"{_label(name, repr(word))} is not a switch. Set it to on or off.")
    return _SWITCHES[word]


def integer(name: str, default: int | None = None) -> int:
    """A whole number. `default` is for settings whose default the machine decides. Raises
    `SettingError` for one that is not in the table's range."""
    setting, word = named(name), text(name)
    if not word:
        return int(setting.default) if default is None else default
    assert isinstance(setting.values, range)
    wanted = f"a whole number from {setting.values.start} to {setting.values.stop - 1}"
    try:
        number = int(word)
    except ValueError:
        raise SettingError(
            f"{_label(name, repr(word))} is not a number. Set it to {wanted}."
        ) from None
    if number not in setting.values:
        raise SettingError(f"{_label(name, word)} is out of range. Set it to {wanted}.")
    return number


def choice(name: str) -> str:
    """The value in lower case. Raises `SettingError` for a word that is not in the table."""
    word = text(name, named(name).default).lower()
    if word not in _words_of(name):
        wanted = " or ".join(sorted(_words_of(name)))
        raise SettingError(f"{_label(name, repr(word))} is unknown. Set it to {wanted}.")
    return word


def url(name: str) -> str:
    """A URL, or "". Raises `SettingError` for a scheme that the table has not.

    A secret one may hold a password, and may be in a file. Others have no trailing slash.
    """
    value = secret(name) if named(name).is_secret else text(name).rstrip("/")
    scheme, _, rest = value.partition("://")
    if value and (scheme not in _words_of(name) or not rest):
        starts = " or ".join(f"{scheme}://" for scheme in sorted(_words_of(name)))
        # The message omits the value, which may contain a password.
        raise SettingError(
            f"{_label(name)} is not a URL that can be used here. Start it with {starts}"
        )
    return value


def words(name: str) -> list[str]:
    """A comma-separated list; empty when the variable is."""
    return [word.strip() for word in text(name).split(",") if word.strip()]


def host_name(name: str) -> str:
    """By default that of the machine. Raises `SettingError` for no value of the label `host`."""
    found = text(name, gethostname())
    if not re.fullmatch(HOST_LABEL, f"host={found}"):
        wrong = _label(name, repr(found))
        raise SettingError(f"{wrong} cannot be used. Write it without space, comma and =.")
    return found


def labels(name: str) -> list[str]:
    """Return pairs of label=value, sorted. Raises `SettingError`."""
    for pair in (found := words(name)):
        if not re.fullmatch(HOST_LABEL, pair):
            raise SettingError(f"{_label(name, repr(pair))} cannot be used. Write disk=fast.")
    return sorted(found)


def percentages(name: str) -> list[int]:
    """Comma-separated whole numbers from 1 to 100, sorted; "off" gives none. Raises `SettingError`
    for other values."""
    found = words(name) or named(name).default.split(",")
    if found == ["off"]:
        return []
    if not all(word.isdecimal() and 1 <= int(word) <= 100 for word in found):
        raise SettingError(
            f"{_label(name, repr(text(name)))} cannot be used. Set it to percentages such as "
            "50,80,100, at most 100, or to off."
        )
    return sorted(set(map(int, found)))


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    """Comma-separated networks such as 10.0.0.0/8. Raises `SettingError` for another value."""
    try:
        return [ip_network(word) for word in words(name)]
    except ValueError as error:
        raise SettingError(
            f"{_label(name)}: {error}. Set it to networks such as 10.0.0.0/8."
        ) from error


def secret(name: str) -> str:
    """The value of NAME, or the content of the file that NAME_FILE names; "" for neither.

    Raises `SettingError` if both are set, or if the file cannot be read.
    """
    value, file = text(name), text(f"{name}_FILE")
    if not file:
        return value
    if value:
        raise SettingError(f"{name} and {name}_FILE are both set. Unset one of them.")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(
            f"{_label(f'{name}_FILE', file)} cannot be read: {error.strerror}."
        ) from error


def token(name: str) -> str:
    """A secret that clients send in a header; "" for none. Raises `SettingError` if it is short,
    or has characters that headers cannot have."""
    value = secret(name)
    if value and (len(value) < _MIN_TOKEN_LENGTH or not value.isascii() or " " in value):
        raise SettingError(
            f"{_label(name)} is too easy to guess. Set it to {_MIN_TOKEN_LENGTH} or more ASCII "
            "characters without spaces, such as the output of: openssl rand -hex 24"
        )
    return value
