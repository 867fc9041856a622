"""Django's secret key and the peppers of API keys, in files of the home folder.

The first process that needs a secret generates it, so there is no default secret. It ends if the
file cannot be written: a secret in memory alone would invalidate every key at the next start. The
environment takes precedence, for hosts that share a database.
"""

import os
import re
import secrets

from vinery.config import env
from vinery.config.env import SettingError
from vinery.config.home import Home, write_private

_PEPPER_VARIABLE = re.compile(r"VINERY_KEY_PEPPER_([1-9]\d*)(?:_FILE)?")
_PEPPER_FILE = re.compile(r"key_pepper_([1-9]\d*)")
# 64 characters as text: Django warns about keys under 50.
_RANDOM_BYTES = 48
# An HMAC-SHA-256 key loses strength when it is shorter than the hash.
_MIN_PEPPER_BYTES = 32


def django_key(home: Home) -> str:
    """Django's SECRET_KEY. Raises `SettingError` if it can be neither read nor generated."""
    return env.secret("VINERY_SECRET_KEY") or _stored(home, "django_secret_key")


def old_django_keys(home: Home) -> list[str]:
    """SECRET_KEY_FALLBACKS, separated by white space. Raises `SettingError` if unreadable."""
    given = env.secret("VINERY_SECRET_KEY_FALLBACKS")
    file = home.secrets / "django_secret_key_fallbacks"
    if not given and file.exists():
        given = _stored(home, file.name)
    return given.split()


def key_peppers(home: Home) -> dict[int, bytes]:
    """The peppers by number, at least one. New keys use the highest. Raises `SettingError`."""
    given = {match[1] for name in os.environ if (match := _PEPPER_VARIABLE.fullmatch(name))}
    peppers = {int(number): env.secret(f"VINERY_KEY_PEPPER_{number}") for number in given}
    peppers = {number: pepper for number, pepper in peppers.items() if pepper}
    if home.secrets.is_dir():
        for file in home.secrets.iterdir():
            if match := _PEPPER_FILE.fullmatch(file.name):
                peppers.setdefault(int(match[1]), _stored(home, file.name))
    if not peppers:
        peppers[1] = _stored(home, "key_pepper_1")
    for number, pepper in peppers.items():
        if len(pepper.encode()) < _MIN_PEPPER_BYTES:
            raise SettingError(
                f"VINERY_KEY_PEPPER_{number} is too short. Use {_MIN_PEPPER_BYTES} bytes or more."
            )
    return {number: pepper.encode() for number, pepper in sorted(peppers.items())}


def _stored(home: Home, name: str) -> str:
    """The content of a secret's file, which is created if it does not exist."""
    file = home.secrets / name
    try:
        if not file.exists():
            file.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(file, f"{secrets.token_urlsafe(_RANDOM_BYTES)}\n", replace=False)
        return file.read_text(encoding="ascii").strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingError(
            f"The secret {file} can be neither read nor created: {reason}. "
            "Set VINERY_HOME to a folder that this user may write to."
        ) from error
