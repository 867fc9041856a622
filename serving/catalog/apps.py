"""The Django app of served models."""

from importlib import import_module

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Served models and their engines. The label is `serving`, as in the tables' names."""

    name = "vinery_serving.catalog"
    label = "serving"
    verbose_name = "Serving"
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Import the tables, which are in several files."""
        super().import_models()
        for table in ("model_events", "speed"):
            import_module(f"{self.name}.{table}")
