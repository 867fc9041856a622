"""The serving app."""

from django.apps import AppConfig


class ServingConfig(AppConfig):
    """Models that are served, and the doors to them."""

    name = "serving"
    default_auto_field = "django.db.models.BigAutoField"
