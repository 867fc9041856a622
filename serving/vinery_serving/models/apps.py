"""The Django app of served models."""

from importlib import import_module

from django.apps import AppConfig

from vinery_accounts.access import served


class CatalogConfig(AppConfig):
    """Served models and their engines. The label is `serving`, as in the tables' names."""

    name = "vinery_serving.models"
    label = "serving"
    verbose_name = "Serving"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        served.provide(import_module(f"{self.name}.registry").read_served)
