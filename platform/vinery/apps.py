"""The Django apps of the project package: `vinery` itself, and the admin with our site."""

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig


class VineryConfig(AppConfig):
    name = "vinery"

    def ready(self) -> None:
        """Register the checks, and make our Celery app the one that sends tasks."""
        from vinery import celery, checks  # noqa: F401


class VineryAdminConfig(SimpleAdminConfig):
    """Django's admin with our site.

    The URLs import the admin modules, so commands and jobs start in half the time.
    """

    default_site = "vinery.admin_site.VineryAdminSite"
