"""Allauth's account app."""

from allauth.account.apps import AccountConfig as AllauthAccountConfig


class AccountConfig(AllauthAccountConfig):  # type: ignore[misc]
    """Allauth's app. Its own check demands that its middleware handles every request.

    Only pages under `/accounts/` need it: `signin/middleware` calls it for these.
    """

    def ready(self) -> None:
        """Register allauth's checks of its settings, and our receivers of its signals."""
        from allauth.account import checks  # noqa: F401

        from vinery_accounts.signin import log  # noqa: F401
