"""The accounts app. Its label is `accounts`, as in the tables' names."""

from allauth.account.apps import AccountConfig as AllauthAccountConfig
from django.apps import AppConfig


class AccountsConfig(AppConfig):
    default = True  # of the classes in this file
    name = "vinery_accounts"
    label = "accounts"
    verbose_name = "Accounts"
    default_auto_field = "django.db.models.BigAutoField"


class AccountConfig(AllauthAccountConfig):  # type: ignore[misc]
    """Allauth's app. Allauth's own check demands that its middleware handles every request. Only
    pages under `/accounts/` need the middleware: `signin/middleware` calls it for these."""

    def ready(self) -> None:
        from allauth.account import checks  # noqa: F401

        from vinery_accounts.signin import log  # noqa: F401
