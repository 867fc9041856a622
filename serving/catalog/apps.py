"""The Django app of served models."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Served models and the state of their engines. Its label is `serving`, as its tables say."""

    name = "serving.catalog"
    label = "serving"
    verbose_name = "Serving"
    default_auto_field = "django.db.models.BigAutoField"
