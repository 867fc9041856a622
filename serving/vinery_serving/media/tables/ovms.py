"""The media options of OpenVINO Model Server, as rules.

There, `--allowed_media_domains` lists hosts with commas between them, compared exactly, without
ports or wildcards; `all` allows every host. `--allowed_local_media_path` is one folder. Redirects
are not followed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from django.core.exceptions import ValidationError

from vinery_accounts.access import audit
from vinery_accounts.models import ScopedRow
from vinery_accounts.resources.base import EVERYTHING
from vinery_serving.media.tables.models import MediaFolder, MediaRule
from vinery_serving.media.tables.resource import MEDIA_FOLDERS, MEDIA_RULES


@dataclass(frozen=True, slots=True)
class Options:
    domains: tuple[str, ...]
    folder: str | None

    @classmethod
    def of(cls, flags: Mapping[str, str]) -> Self:
        """Return the options among flags of the model server, by name."""
        domains = (each.strip() for each in flags.get("allowed_media_domains", "").split(","))
        folder = flags.get("allowed_local_media_path") or None
        return cls(tuple(dict.fromkeys(filter(None, domains))), folder)


@dataclass(frozen=True, slots=True)
class Imported:
    new: tuple[str, ...]
    known: tuple[str, ...]


def store(options: Options) -> Imported:
    """Store rules of the platform for all of it, or none. Raises ValidationError."""
    advice = "Name the hosts that clients need, such as with: vinery media allow '*.example.org'"
    for host in options.domains:
        if host == "all":
            text = "`all` allows every host there. Vinery has no such rule."
            raise ValidationError(f"{text} {advice}")
        if "*" in host:
            text = f"{host} matches no host there: it is compared exactly."
            raise ValidationError(f"{text} {advice}")
    with audit.writing():
        found = list(_store(options))
    return Imported(
        tuple(str(row) for row, is_new in found if is_new),
        tuple(str(row) for row, is_new in found if not is_new),
    )


def _store(options: Options) -> Iterator[tuple[ScopedRow, bool]]:
    for host in options.domains:
        row = MediaRule(host=host, schemes=["https", "http"], max_redirects=0)
        yield _add(MEDIA_RULES, row, "host", note="from allowed_media_domains")
    if options.folder:
        folder = MediaFolder(folder=options.folder)
        yield _add(MEDIA_FOLDERS, folder, "folder", note="from allowed_local_media_path")


def _add(resource: Any, row: Any, column: str, *, note: str) -> tuple[ScopedRow, bool]:
    row.clean_fields()  # normalises the host or the folder
    same = {column: getattr(row, column), "organization": None}
    known = resource.rows(EVERYTHING).filter(**same).first()
    if known is not None:
        return known, False
    names = [name for name in resource.writable() if name not in ("organization", "project")]
    return resource.create(EVERYTHING, {n: getattr(row, n) for n in names} | {"note": note}), True
