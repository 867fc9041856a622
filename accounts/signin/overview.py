"""The page about oneself: who is signed in, and what protects the account."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.mixins import LoginRequiredMixin
from django.views.generic import TemplateView

from accounts.models import User
from accounts.signin.factors import has_second_factor


class Overview(LoginRequiredMixin, TemplateView):
    """`/accounts/`."""

    template_name = "account/overview.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the template shows."""
        user = self.request.user
        assert isinstance(user, User)
        context = super().get_context_data(**kwargs)
        return context | {
            "has_second_factor": has_second_factor(user),
            "issuer": settings.VINERY_OIDC,
        }
