"""Sealed copies of tables that a process keeps in memory, in the cache of the home folder.

A process that starts while the database is away goes on with the copies. A copy is encrypted and
authenticated with Django's key, so it reveals nothing, and nobody else can make one.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from django.conf import settings

from vinery_accounts.base.encryption import seal, unseal
from vinery_accounts.base.files import write_private

log = logging.getLogger(__name__)

ContentT = TypeVar("ContentT")

_FOLDER: Final = "sealed"
# How often a copy without changes is written again: its time is the age of the data.
_RENEW_INTERVAL_S: Final = 60.0


class SealedTable(Generic[ContentT]):
    """The copy of one table. One thread may call `keep` while another calls `read`. `content` is
    the type of what is kept, built of types that msgspec reads and writes, and paths. A copy of
    another form, for example of another version of Vinery, is not used."""

    def __init__(self, name: str, content: Any, *, clock: Callable[[], float] = time.time) -> None:
        self._name = name
        self._purpose = f"sealed table {name}".encode()
        self._decoder = msgspec.msgpack.Decoder(tuple[float, content], dec_hook=operator.call)
        self._clock = clock
        self._kept: tuple[ContentT, float] | None = None

    def keep(self, content: ContentT, read_at_s: float | None = None) -> None:
        """Write what was read of the database, now by default, if it has changed or the copy is a
        minute older. The caller never changes `content` afterwards. Failures are logged."""
        read_at_s = self._clock() if read_at_s is None else read_at_s
        kept, kept_at_s = self._kept or (None, 0.0)
        if read_at_s - kept_at_s < _RENEW_INTERVAL_S and kept == content:
            return
        sealed = seal(self._purpose, _ENCODER.encode((read_at_s, content)))
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(self._path, sealed)
        except OSError as error:
            log.warning("the sealed copy of %s is not written: %s", self._name, error)
            return
        self._kept = content, read_at_s

    def read(self) -> tuple[float, ContentT] | None:
        """Return the Unix time in seconds at which the database had the content, and the content;
        None without a copy that can be used."""
        try:
            opened = unseal(self._purpose, self._path.read_bytes())
            return cast("tuple[float, ContentT]", self._decoder.decode(opened))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("the sealed copy of %s cannot be used: %s", self._name, error)
            return None

    @property
    def _path(self) -> Path:
        return Path(settings.VINERY_CACHE_DIR) / _FOLDER / self._name


def is_empty() -> bool:
    """Whether no table has a copy in this home."""
    return not any((Path(settings.VINERY_CACHE_DIR) / _FOLDER).glob("[!.]*"))


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=str)
