"""All users of the platform, also those without a role, for its administrators: lost passwords and
second factors, and removal."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.urls import reverse

from vinery_accounts.access import changes
from vinery_accounts.console.generated import New, Row, Rows
from vinery_accounts.console.members import show_link
from vinery_accounts.console.page import at
from vinery_accounts.console.rows import ConfirmPage, Question, show_secret
from vinery_accounts.models import Role
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

    def save(self, form: ResourceForm) -> HttpResponse:
        values = {**form.columns, "is_service": False, "role": Role.MEMBER}
        user = USERS.create(self.access, values)
        return show_link(self, user, USERS.act(self.access, USERS.action("link"), user))


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

    def report(self, result: Any, done: str) -> HttpResponse | None:
        if self.does == "link":
            return show_link(self, self.row, result)
        if self.does != "password":
            return super().report(result, done)
        heading, text = f"A new password for {self.row}", "The user's sessions are ended."
        about = (heading, f"It is shown once. {text}", result["password"], self.back_address())
        return show_secret(self, *about, copy="Copy the password")


@at("users/<int:row_id>/", "users", "promote", "demote")
class Administrator(HelpUser):
    """Gives and takes the rights of an administrator of the platform. The API has no such action:
    what a stolen admin key has made must not outlive the key."""

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
