"""All users of the platform, also those without a role, for its administrators: lost passwords and
second factors, and removal."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from vinery_accounts.access import changes
from vinery_accounts.console.generated import New, Row, Rows
from vinery_accounts.console.invitations import show_link
from vinery_accounts.console.page import at
from vinery_accounts.console.rows import ConfirmPage, Question
from vinery_accounts.models import Role
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.users import USERS


@at("users/", "users")
class Users(Rows):
    resource = USERS
    inputs = {"username": {"type": "search"}}
    hint = "Search for the whole name."


@at("users/new/", "users-new")
class NewUser(New):
    resource = USERS
    heading = "Create a user without a role"
    names = ("username", "email")

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        return ResourceForm(USERS, self.access, data, self.names)

    def save(self, form: ResourceForm) -> HttpResponse:
        values = {name: form.cleaned_data[name] for name in self.names}
        role = {"is_service": False, "role": Role.MEMBER}
        return show_link(self, USERS.create(self.access, values | role))


@at("users/<int:row_id>/", "users-row")
class UserPage(Row):
    resource = USERS
    names = ("email",)

    def does(self) -> list[str]:
        """Return what helps this user: a link only before the first sign-in."""
        user = self.row
        gone = {"link"} if user.last_login or user.is_service else {"second_factor_off"}
        gone |= {"password", "second_factor_off"} if user.is_service else set()
        found = [each for each in super().does() if each not in gone]
        return found if user.is_service else [*found, "demote" if user.is_superuser else "promote"]


@at("users/<int:row_id>/", "users", "link", "password", "second_factor_off")
class HelpUser(ConfirmPage):
    """A link or a new password, which is shown once, or no second factor any more."""

    resource = USERS
    questions = {
        "link": Question(
            "Get a link for {row}?", USERS.action("link").help, "", "Get the link", is_danger=False
        ),
        "password": Question(
            "Give {row} a new password?",
            "It is shown once. The sessions of {row} end, and the old password works no more.",
            "",
            "Give a new password",
        ),
        "second_factor_off": Question(
            "Reset the second factor of {row}?",
            "The code app, the passkeys and the recovery codes of {row} work no more. The password "
            "alone logs in until {row} sets up a new factor.",
            "{row} has no second factor.",
            "Reset the second factor",
        ),
    }

    def back_address(self) -> str:
        return reverse("console:users-row", args=[self.row.pk])

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if self.does == "second_factor_off":
            return super().post(request, *args, **kwargs)
        try:
            if self.does == "link":
                return show_link(self, self.row)
            password = self.act()["password"]
        except Conflict as error:
            messages.error(request, str(error))
            return redirect(self.back_address())
        context = self.get_context_data() | {
            "heading": f"A new password for {self.row}",
            "text": "It is shown once. The user's sessions are ended.",
            "secret": password,
            "copy": "Copy the password",
            "done": "Done",
        }
        return render(request, "console/issued.html", context)


@at("users/<int:row_id>/", "users", "promote", "demote")
class Administrator(ConfirmPage):
    """Gives and takes the rights of an administrator of the platform. The API has no such action:
    what a stolen admin key has made must not outlive the key."""

    resource = USERS
    questions = {
        "promote": Question(
            "Make {row} an administrator?",
            "{row} may then do everything on this platform, in all organisations.",
            "{row} is an administrator.",
            "Make an administrator",
        ),
        "demote": Question(
            "Take the rights of an administrator from {row}?",
            "The roles of {row} in organisations stay, and admin keys of {row} are paused.",
            "{row} is no administrator any more.",
            "Take the rights",
        ),
    }

    def check(self) -> None:
        if self.row.is_service:
            raise PermissionDenied

    def act(self) -> None:
        self.check()
        is_on = self.does == "promote"
        changes.change(self.row, self.does, is_superuser=is_on, is_staff=is_on)

    def back_address(self) -> str:
        return reverse("console:users-row", args=[self.row.pk])
