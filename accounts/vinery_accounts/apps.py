"""The accounts app. Its label is `accounts`, as in the tables' names."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """People, keys, limits and usage."""

    name = "vinery_accounts"
    label = "accounts"
    verbose_name = "Accounts"
    default_auto_field = "django.db.models.BigAutoField"
