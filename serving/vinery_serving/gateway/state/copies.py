"""Sealed copies of what a web process keeps in memory, for its start while the database is away."""

from typing import Any, NamedTuple, get_type_hints

from vinery_accounts.base.sealed_table import SealedTable
from vinery_accounts.keys.table import KeyEntries
from vinery_accounts.limits.service import Snapshot
from vinery_serving.gateway.engines.models import ModelEntry
from vinery_serving.media.tables.policies import Levels

# The arguments of `LocalDirectory.update`.
Models = tuple[dict[str, ModelEntry], frozenset[str], dict[str, dict[str, int]], frozenset[str]]


class Tables(NamedTuple):
    """All that a web process needs before it serves."""

    keys: KeyEntries
    limits: Snapshot
    media: Levels
    models: Models
    quarantine: frozenset[str]


class Copies:
    def __init__(self) -> None:
        types = get_type_hints(Tables).items()
        self._copies = [SealedTable[Any](name, content) for name, content in types]

    def keep(self, tables: Tables, read_at_s: float) -> None:
        for copy, content in zip(self._copies, tables, strict=True):
            copy.keep(content, read_at_s)

    def read(self) -> tuple[Tables, float] | None:
        """Return all tables and when the oldest one was read; None if one is missing."""
        found = [copy.read() for copy in self._copies]
        read = [each for each in found if each is not None]
        if len(read) < len(found):
            return None
        times, contents = zip(*read, strict=True)
        return Tables(*contents), min(times)
