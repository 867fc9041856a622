"""Typed readers of environment variables. An unset or empty variable gives the default.
`config_file` sets those that a configuration file has.

Standard library only, because the supervisor reads its settings without Django.
"""

import os
from collections.abc import Collection, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from vinery_platform.config.setting_table import key_of

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
    """Remember that a variable was set from a configuration file, for messages."""
    _origins[name] = file


def origin_of(name: str) -> Path | None:
    """The configuration file from which a variable was set; None for the environment."""
    return _origins.get(name)


def _called(name: str) -> str:
    """The setting as the user knows it: a variable, or a key of a file."""
    file = origin_of(name)
    return name if file is None else f"{key_of(name)} in {file}"


def _given(name: str, value: object) -> str:
    """The setting with its value as the user wrote them."""
    file = origin_of(name)
    return f"{name}={value}" if file is None else f"{key_of(name)} = {value} in {file}"


def text(name: str, default: str = "") -> str:
    """The variable's value without leading and trailing space."""
    return os.environ.get(name, "").strip() or default


def on_off(name: str, *, default: bool) -> bool:
    """A switch. Raises `SettingError` for any other word."""
    word = text(name).lower()
    if word and word not in _SWITCHES:
        raise SettingError(f"{_given(name, repr(word))} is not a switch. Set it to on or off.")
    return _SWITCHES.get(word, default)


def integer(name: str, default: int, *, at_least: int, at_most: int) -> int:
    """A whole number in a closed range. Raises `SettingError` outside of it."""
    word = text(name)
    if not word:
        return default
    wanted = f"a whole number from {at_least} to {at_most}"
    try:
        number = int(word)
    except ValueError:
        raise SettingError(
            f"{_given(name, repr(word))} is not a number. Set it to {wanted}."
        ) from None
    if not at_least <= number <= at_most:
        raise SettingError(f"{_given(name, word)} is out of range. Set it to {wanted}.")
    return number


def choice(name: str, default: str, *, among: Collection[str]) -> str:
    """One of a few words, in lower case. Raises `SettingError` for any other."""
    word = text(name, default).lower()
    if word not in among:
        raise SettingError(
            f"{_given(name, repr(word))} is unknown. Set it to {' or '.join(sorted(among))}."
        )
    return word


def url(name: str, *, schemes: Collection[str], is_secret: bool = False) -> str:
    """A URL, or "". Raises `SettingError` for another scheme.

    A secret one may hold a password, and may be in a file. Others have no trailing slash.
    """
    value = secret(name) if is_secret else text(name).rstrip("/")
    scheme, _, rest = value.partition("://")
    if value and (scheme not in schemes or not rest):
        starts = " or ".join(f"{scheme}://" for scheme in sorted(schemes))
        # The message omits the value, which may contain a password.
        raise SettingError(
            f"{_called(name)} is not a URL that can be used here. Start it with {starts}"
        )
    return value


def words(name: str) -> list[str]:
    """A comma-separated list; empty when the variable is."""
    return [word.strip() for word in text(name).split(",") if word.strip()]


def numbers(
    name: str, default: Sequence[int], *, at_most: int, like: str = "numbers such as 1,7"
) -> list[int]:
    """Comma-separated whole numbers from 1 to `at_most`, sorted; "off" gives none.

    Raises `SettingError` for other values. `like` describes good values in its message.
    """
    found = words(name)
    if not found:
        return list(default)
    if found == ["off"]:
        return []
    if not all(word.isdecimal() and 1 <= int(word) <= at_most for word in found):
        raise SettingError(
            f"{_given(name, repr(text(name)))} cannot be used. Set it to {like}, at most "
            f"{at_most}, or to off."
        )
    return sorted(set(map(int, found)))


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    """Comma-separated networks such as 10.0.0.0/8. Raises `SettingError` for another value."""
    try:
        return [ip_network(word) for word in words(name)]
    except ValueError as error:
        raise SettingError(
            f"{_called(name)}: {error}. Set it to networks such as 10.0.0.0/8."
        ) from error


def folder(name: str, default: Path) -> Path:
    """An absolute path. A relative value is resolved from the working directory."""
    return Path(text(name, str(default))).expanduser().resolve()


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
            f"{_given(f'{name}_FILE', file)} cannot be read: {error.strerror}."
        ) from error


def secret_file(name: str) -> str:
    """The path in NAME_FILE, for a library that reads the file itself; "" if it is unset."""
    return text(f"{name}_FILE")


def token(name: str) -> str:
    """A secret that clients send in a header; "" for none. Raises `SettingError` if it is short,
    or has characters that headers cannot have."""
    value = secret(name)
    if value and (len(value) < _MIN_TOKEN_LENGTH or not value.isascii() or " " in value):
        raise SettingError(
            f"{_called(name)} is too easy to guess. Set it to {_MIN_TOKEN_LENGTH} or more ASCII "
            "characters without spaces, such as the output of: openssl rand -hex 24"
        )
    return value
