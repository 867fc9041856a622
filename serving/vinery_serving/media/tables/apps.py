"""The Django app of media rules."""

from django.apps import AppConfig


class AllowlistConfig(AppConfig):
    """Which media of requests may be fetched."""

    name = "vinery_serving.media.tables"
    label = "media"
    verbose_name = "Media"
    default_auto_field = "django.db.models.BigAutoField"
