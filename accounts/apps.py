"""The accounts app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """People, keys, limits and usage."""

    name = "accounts"
    default_auto_field = "django.db.models.BigAutoField"
