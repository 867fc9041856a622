"""The Django app of media rules."""

from django.apps import AppConfig


class AllowlistConfig(AppConfig):
    name = "vinery_serving.media.tables"
    label = "media"
    verbose_name = "Media"
    default_auto_field = "django.db.models.BigAutoField"
