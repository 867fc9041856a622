"""The Django apps of the project package, and the system checks of settings, which `vinery prepare`
runs. Their ids are stable, so an operator can silence one.
"""

import importlib
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig
from django.core.checks import CheckMessage, Error, Warning, register
from rest_framework.apps import RestFrameworkConfig

# REST framework imports these packages where installed. No part that we use needs them; the imports
# cost 10 MB and 150 ms of each process and command.
_OPTIONAL = ("django.contrib.postgres", "markdown", "pygments", "requests", "yaml")


class VineryConfig(AppConfig):
    name = "vinery_platform.web"


class VineryAdminConfig(SimpleAdminConfig):
    """Django's admin with our site. The URLs import the admin modules, so commands and jobs start
    in half the time."""

    default_site = "vinery_platform.web.middleware.VineryAdminSite"


class VineryRestConfig(RestFrameworkConfig):
    """REST framework without what it could use, but we do not."""

    def ready(self) -> None:
        hidden = [name for name in _OPTIONAL if name not in sys.modules]
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not found
        try:
            importlib.import_module("rest_framework.compat")
        finally:
            for name in hidden:
                del sys.modules[name]
        super().ready()


# -- Checks

# The tag of all checks in this file.
VINERY = "vinery"

# A stream needs two descriptors, and a web worker should serve a few hundred streams.
MIN_OPEN_FILES = 1024

# SQLite's WAL needs shared memory between all processes that use the file.
NETWORK_FILESYSTEMS = frozenset({"9p", "cifs", "nfs", "nfs4", "smb3", "smbfs"})


@register(VINERY)
def open_access_is_local(**_: Any) -> Iterable[CheckMessage]:
    """E002 and E004: clients on the network could use models without a key, or see settings and
    request bodies on debug pages."""
    if settings.VINERY_ADDRESS.is_loopback:
        return
    if not settings.VINERY_AUTH_ENABLED:
        yield Error(
            f"VINERY_AUTH=off would serve all clients of {settings.VINERY_ADDRESS.host}.",
            hint="Set VINERY_AUTH=on, or VINERY_HOST=127.0.0.1.",
            id="vinery.E002",
        )
    if settings.DEBUG:
        yield Error(
            "VINERY_DEBUG=on would show settings and requests to other machines.",
            hint="Unset VINERY_DEBUG, or set VINERY_HOST=127.0.0.1.",
            id="vinery.E004",
        )


@register(VINERY)
def sqlite_is_on_a_local_disk(**_: Any) -> Iterable[CheckMessage]:
    """W001: SQLite on a network file system loses data when two processes write."""
    database = settings.DATABASES["default"]
    if not database["ENGINE"].endswith("sqlite3"):
        return
    kind = filesystem_of(Path(database["NAME"]))
    if kind in NETWORK_FILESYSTEMS:
        yield Warning(
            f"The SQLite file {database['NAME']} is on a network file system ({kind}).",
            hint="Set VINERY_HOME to a local disk, or DATABASE_URL to a PostgreSQL server.",
            id="vinery.W001",
        )


@register(VINERY)
def enough_files_can_be_open(**_: Any) -> Iterable[CheckMessage]:
    """W002: streams would end with "too many open files"."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < MIN_OPEN_FILES:
        yield Warning(
            f"This process may open only {limit} files and sockets.",
            hint=f"Raise the limit to {MIN_OPEN_FILES} or more: ulimit -n {MIN_OPEN_FILES}",
            id="vinery.W002",
        )


def filesystem_of(path: Path) -> str:
    """The type of file system of a path, as the system names it; "" if unknown."""
    import psutil  # all commands import this file

    kinds = {each.mountpoint: each.fstype for each in psutil.disk_partitions(all=True)}
    resolved = path.resolve()
    return next((kinds[str(at)] for at in (resolved, *resolved.parents) if str(at) in kinds), "")
