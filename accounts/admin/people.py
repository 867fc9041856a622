"""People in Django's admin."""

from __future__ import annotations

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.models import User
from accounts.signin.recovery import reset_second_factor


@admin.register(User)
class UserAdmin(DjangoUserAdmin):  # type: ignore[type-arg]
    """Django's own; deactivating a user stops their keys."""

    list_display = ["username", "email", "is_active", "is_staff", "last_login", "date_joined"]
    actions = ["reset_second_factors"]

    @admin.action(description="Reset the second factor", permissions=["change"])
    def reset_second_factors(self, request: HttpRequest, people: QuerySet[User]) -> None:
        """For whoever lost phone and recovery codes: the password alone lets them in again.

        As with passwords in Django's own admin, whoever may change users may do this.
        """
        names = [user.get_username() for user in people if reset_second_factor(user)]
        if names:
            self.message_user(request, f"Reset for {', '.join(names)}.", messages.SUCCESS)
        else:
            self.message_user(request, "There was nothing to reset.", messages.INFO)
