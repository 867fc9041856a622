"""Django's secret key and the peppers of API keys, in files of the home folder.

`vinery prepare` generates the files. Without the files a secret is empty, which Django refuses: no
secret has a default, and a process that only reads generates none. The environment takes
precedence, for hosts that share a database.
"""

import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from vinery_accounts.base.files import write_private
from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home

_KEY_FILE = "django_secret_key"
HOST_KEY_FILE = "host_key"
_PEPPER_VARIABLE = re.compile(r"VINERY_KEY_PEPPER_([1-9]\d*)(?:_FILE)?")
_PEPPER_FILE = re.compile(r"key_pepper_([1-9]\d*)")
# 64 characters as text: Django warns about keys under 50.
_RANDOM_BYTES = 48
# An HMAC-SHA-256 key loses strength when it is shorter than the hash.
_MIN_PEPPER_BYTES = 32


def django_key(home: Home) -> str:
    """Django's SECRET_KEY; "" without one. Raises `SettingError` if it cannot be read."""
    return env.secret("VINERY_SECRET_KEY") or _stored(home, _KEY_FILE)


def socket_secret(home: Home) -> bytes:
    """The keys of a home's sockets are derived from this secret. Raises `SettingError`."""
    return hmac.digest(django_key(home).encode(), b"vinery sockets", "sha256")


def authority_secrets(home: Home) -> list[bytes]:
    """The keys of the authority of hosts are derived from these: the first signs. Raises
    `SettingError`."""
    keys = (django_key(home), *old_django_keys(home))
    return [hmac.digest(key.encode(), b"vinery hosts", "sha256") for key in keys]


def host_key(home: Home) -> str:
    """What this host alone knows, among several; "" for a sole host. Raises `SettingError`."""
    return _stored(home, HOST_KEY_FILE)


def old_django_keys(home: Home) -> list[str]:
    """SECRET_KEY_FALLBACKS, separated by white space. Raises `SettingError` if unreadable."""
    given = env.secret("VINERY_SECRET_KEY_FALLBACKS")
    return (given or _stored(home, "django_secret_key_fallbacks")).split()


def key_peppers(home: Home) -> dict[int, bytes]:
    """The peppers by number; none without one. New keys use the highest. Raises `SettingError`."""
    given = {match[1] for name in os.environ if (match := _PEPPER_VARIABLE.fullmatch(name))}
    peppers = {int(number): env.secret(f"VINERY_KEY_PEPPER_{number}") for number in given}
    peppers = {number: pepper for number, pepper in peppers.items() if pepper}
    for name in _names(home):
        if match := _PEPPER_FILE.fullmatch(name):
            peppers.setdefault(int(match[1]), _stored(home, name))
    for number, pepper in peppers.items():
        if len(pepper.encode()) < _MIN_PEPPER_BYTES:
            raise SettingError(
                f"VINERY_KEY_PEPPER_{number} is too short. Use {_MIN_PEPPER_BYTES} bytes or more."
            )
    return {number: pepper.encode() for number, pepper in sorted(peppers.items())}


def create_missing(home: Home) -> None:
    """Generate the secrets that neither the environment nor the home has. Safe if several
    processes do it at once. Raises `SettingError`."""
    missing = [_KEY_FILE] if not django_key(home) else []
    missing += ["key_pepper_1"] if not key_peppers(home) else []
    if env.text("VINERY_HOST_ADDRESS") and not host_key(home):
        missing.append(HOST_KEY_FILE)
    create(home, {name: new_secret() for name in missing})


def new_secret() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)


def create(home: Home, texts: Mapping[str, str]) -> None:
    """Write secrets by the names of their files, unless there are such files. Raises
    `SettingError`."""
    try:
        for name, text in texts.items():
            home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            home.secrets.mkdir(mode=0o700, exist_ok=True)
            write_private(home.secrets / name, f"{text}\n", replace=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingError(
            f"The secrets in {home.secrets} cannot be created: {reason}. "
            "Set VINERY_HOME to a folder that this user may write to."
        ) from error


def require(home: Home) -> None:
    """Raises `SettingError` if this home has not been prepared, or if a secret is missing."""
    if not django_key(home) or not key_peppers(home):
        raise home.missing()


def _names(home: Home) -> list[str]:
    """The names of the files in the folder of secrets. Raises `SettingError`."""
    try:
        return [file.name for file in home.secrets.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(home.secrets, error) from error


def _stored(home: Home, name: str) -> str:
    """The content of a secret's file; "" without one. Raises `SettingError`."""
    file = home.secrets / name
    try:
        return file.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(path: Path, error: OSError) -> SettingError:
    reason = (error.strerror or str(error)).lower()
    return SettingError(
        f"The secrets in {path} cannot be read: {reason}. Run this as the user that runs "
        "`vinery up`, or set VINERY_HOME to another folder."
    )
