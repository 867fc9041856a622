"""The Django apps of the project package: `vinery` itself, and others with our settings."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig
from rest_framework.apps import RestFrameworkConfig

# What REST framework imports if it is installed. We use no part of it that needs them, and they
# cost 10 MB and 150 ms of each process and command.
_OPTIONAL = ("django.contrib.postgres", "markdown", "pygments", "requests", "yaml")


class VineryConfig(AppConfig):
    name = "vinery_platform.web"

    def ready(self) -> None:
        """Register the checks."""
        from vinery_platform import checks  # noqa: F401


class VineryAdminConfig(SimpleAdminConfig):
    """Django's admin with our site.

    The URLs import the admin modules, so commands and jobs start in half the time.
    """

    default_site = "vinery_platform.admin_site.VineryAdminSite"


class VineryRestConfig(RestFrameworkConfig):
    """REST framework without what it could use, but we do not."""

    def ready(self) -> None:
        with _without(_OPTIONAL):
            importlib.import_module("rest_framework.compat")
        super().ready()


@contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    """Let these modules seem not installed, unless they are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not found
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
