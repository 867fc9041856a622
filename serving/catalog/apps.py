"""The Django app of served models."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Served models and their engines. The label is `serving`, as in the tables' names."""

    name = "vinery_serving.catalog"
    label = "serving"
    verbose_name = "Serving"
    default_auto_field = "django.db.models.BigAutoField"
