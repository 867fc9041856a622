"""allauth's account app, under a middleware of ours."""

from __future__ import annotations

from allauth.account.apps import AccountConfig as AllauthAccountConfig


class AccountConfig(AllauthAccountConfig):  # type: ignore[misc]
    """Allauth's own, which would insist that its middleware sees every request.

    Only pages under `/accounts/` need it, and `accounts.signin.pages` gives it these; requests
    of the API are none of its business.
    """

    def ready(self) -> None:
        """Register allauth's checks of its settings, and listen to what it tells."""
        from allauth.account import checks  # noqa: F401

        from accounts.signin import journal  # noqa: F401
