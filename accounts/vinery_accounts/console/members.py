"""Members with their roles, invitations, service accounts and, for administrators, all users."""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.mail import send_mail
from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.html import format_html

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.keys import projects_for
from vinery_accounts.console.menu import moment
from vinery_accounts.console.organization import ScopeField
from vinery_accounts.console.page import Page, at
from vinery_accounts.console.rows import (
    ChangeRow,
    Columns,
    ConfirmPage,
    NewRow,
    Row,
    Rows,
    Table,
    add_page,
    cells_of,
    show_secret,
)
from vinery_accounts.models import Membership, Organization, Role, User
from vinery_accounts.resources.base import Issued, Resource, columns_of, require
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS

log: Final = logging.getLogger(__name__)

_COLUMNS: Final = columns_of("user role where=scope")
_LED_COLUMNS: Final = columns_of(
    "email=user.email active=user.is_active",
    **{
        "last_sign-in": lambda row: row.user.last_login or "never",
        "two-factor_authentication": lambda row: "on" if row.has_second_factor else "off",
    },
)


class Roles(Rows):
    resource = MEMBERSHIPS
    ordering = ("user__username", "id")

    def row_address(self, row: Membership) -> str:
        return reverse("console:member", args=[row.pk])

    def may_open(self, row: Membership) -> bool:
        return self.access.leads(row.organization_id, row.project_id)


@at("members/", "members")
class Members(Roles):
    title = "Members"
    note = "Owners manage members, admins manage service accounts."

    def listed(self) -> QuerySet[Membership]:
        return super().listed().filter(user__is_service=False)

    def columns(self) -> Columns:
        """Return what members may know of each other; those who lead see more."""
        led = {name: self._if_led(column) for name, column in _LED_COLUMNS.items()}
        return _COLUMNS | led if self.access.is_leader else _COLUMNS

    def _if_led(self, column: Callable[[Membership], Any]) -> Callable[[Membership], Any]:
        return lambda row: column(row) if self.may_open(row) else ""

    def buttons(self) -> dict[str, str]:
        if not self.access.owns_scope:
            return {}
        return {
            "Invite a colleague": reverse("console:member-new"),
            "Add an existing user": reverse("console:invitations-new"),
            "Open invitations": reverse("console:invitations"),
        }


@at("service-accounts/", "service-accounts")
class ServiceAccounts(Roles):
    title = "Service accounts"
    empty_text = "No service account yet. Create one for each program that sends requests."
    note = (
        "A service account is a program's: it owns keys, and cannot log in. Its keys stay when a "
        "person leaves."
    )

    def listed(self) -> QuerySet[Any]:
        keys = Count("user__api_keys", filter=Q(user__api_keys__revoked_at=None))
        rows: Any = super().listed().filter(user__is_service=True)
        return rows.annotate(num_keys=keys)  # type: ignore[no-any-return]

    def columns(self) -> Columns:
        return _COLUMNS | columns_of("keys=num_keys active=user.is_active")

    def buttons(self) -> dict[str, str]:
        return {"Create a service account": reverse("console:service-account-new")}


class RoleForm(ResourceForm):
    field_order = ("username", "email", "where", "role")

    def __init__(self, resource: Resource[Any], access: Access, *args: Any, **more: Any) -> None:
        super().__init__(resource, access, *args, **more | {"initial": {"role": Role.MEMBER}})
        # Of several, none is chosen: a mistake would show a stranger the first organisation.
        none = [("", "Choose one")] if access.rows(Organization).count() > 1 else []
        text = "A role in an organisation holds in all of its projects."
        self.fields["where"] = ScopeField(access, Role.ADMIN, none, label="Where", help_text=text)
        self.order_fields(self.field_order)

    @property
    def columns(self) -> dict[str, Any]:
        scope = self.cleaned_data["where"]
        return {**super().columns, scope._meta.model_name: scope}


@at("service-accounts/new/", "service-account-new")
class NewServiceAccount(NewRow):
    resource = USERS
    form_class = RoleForm
    names = ("username", "role")
    heading = "Create a service account"
    intro = "A program's account: it owns keys and cannot log in. Next you create its first key."
    done = "The service account {row} is created."

    def save(self, form: ResourceForm) -> HttpResponse:
        return self.stored(USERS.create(self.access, {**form.columns, "is_service": True}))

    def row_address(self, row: User) -> str:
        return f"{reverse('console:key-new')}?{urlencode({'owner': row.get_username()})}"


@at("members/<int:row_id>/", "member")
class Member(ChangeRow):
    needs = "is_leader"
    template_name = "console/member.html"
    resource = MEMBERSHIPS
    names = ("role",)
    done = "{row}."

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        roles = MEMBERSHIPS.rows(self.access).filter(user=self.row.user)
        return super().get_context_data(**kwargs) | {
            "may_manage": self.access.may(Action.MANAGE, self.row.user),
            "is_led": self.access.leads(self.row.organization_id, self.row.project_id),
            "others": roles.exclude(pk=self.row.pk),
        }

    def row_address(self, row: Membership) -> str:
        return reverse("console:service-accounts" if row.user.is_service else "console:members")


add_page(ConfirmPage, MEMBERSHIPS, "members/<int:row_id>/remove/", "member-remove", does="remove")


@at("users/new/", "users-new")
class NewUser(NewRow):
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


@at("users/<int:row_id>/", "users", "link", "password")
class HelpUser(ConfirmPage):
    """A link or a new password, which is shown once."""

    resource = USERS

    def report(self, result: Any, done: str) -> HttpResponse | None:
        if self.does == "link":
            return show_link(self, self.row, result)
        if self.does != "password":
            return super().report(result, done)
        heading, text = f"A new password for {self.row}", "The user's sessions are ended."
        about = (heading, f"It is shown once. {text}", result["password"], self.back_address())
        return show_secret(self, *about, copy="Copy the password")


@at("members/<int:row_id>/", "member", "deactivate", "activate", "link")
class ActOnMember(HelpUser):
    name = "members"

    @cached_property
    def row(self) -> User:
        return get_object_or_404(MEMBERSHIPS.rows(self.access), pk=self.kwargs["row_id"]).user


_RIGHTS: Final = {
    "promote": ("The user may then do everything on this platform.", "an administrator"),
    "demote": (
        "Roles in organisations stay, and admin keys of the user are paused.",
        "no administrator any more",
    ),
}


@at("users/<int:row_id>/", "users", "promote", "demote")
class Administrator(ConfirmPage):
    """Gives and takes the rights of an administrator of the platform. The API has no such action:
    what a stolen admin key has made must not outlive the key."""

    resource = USERS

    def text(self) -> str:
        return _RIGHTS[self.does][0]

    def done_text(self) -> str:
        return f"{self.row} is {_RIGHTS[self.does][1]}."

    def check(self) -> None:
        if self.row.is_service:
            raise PermissionDenied

    def act(self) -> None:
        self.check()
        is_on = self.does == "promote"
        changes.change(self.row, self.does, is_superuser=is_on, is_staff=is_on)


def show_link(page: Page, user: User, link: Any, key: Issued | None = None) -> HttpResponse:
    text = (
        "<strong>Send this link to {} alone.</strong> With it they set a password and sign in. It "
        "works once, until {}. Any holder of the link can use it.{}"
    )
    address = page.base_url() + link["path"]
    text = format_html(text, user, moment(link["expires_at"]), _mail(user, address))
    heading, back = f"A link for {user}", reverse("console:members")
    return show_secret(page, heading, text, address, back, copy="Copy the link", key=key)


def _mail(user: User, address: str) -> str:
    """Send the link, where this server sends such mails, and return what became of it."""
    if not (settings.VINERY_PASSWORD_RESET and user.email):
        return ""
    text = (
        f"You are invited to a Vinery server, with the user name {user}. Choose a password:\n\n"
        f"{address}\n\nThe link works once. If you expected no invitation, ignore this mail.\n"
    )
    try:
        send_mail("Vinery: your invitation", text, None, [user.email])
    except OSError as error:  # of the connection, or of the mail server
        log.warning("An invitation was not sent by mail: %s", type(error).__name__)
        return f" The mail to {user.email} was not sent: the mail server refused or is away."
    return f" It was also sent to {user.email}."


# -- Invitations

_NEW: Final = columns_of("name=user email=user.email role where=scope created=created_at")


@at("members/invite/", "invitations-new")
class Invite(NewRow):
    """A role for a user who exists. A user that the caller sees gets the role at once. Any other
    name gets an invitation: the page does not reveal which names exist."""

    resource = INVITATIONS
    form_class = RoleForm
    names = ("username", "role")
    heading, button = "Add an existing user", "Add"
    intro = (
        "A member of your organisation gets the role at once. Any other user finds an invitation "
        "in the console. For privacy, this page does not show whether a user of that name exists."
    )

    def texts(self) -> dict[str, Any]:
        text = 'The user has no account yet? <a href="{}">Create one</a>.'
        return {"note": format_html(text, reverse("console:member-new"))}

    def save(self, form: ResourceForm) -> HttpResponse:
        username, role, scope = (form.cleaned_data[name] for name in ("username", "role", "where"))
        user = self.access.rows(User).filter(username=username).first()
        if user is None:
            INVITATIONS.create(self.access, form.columns)
            text = (
                f"{username} is invited: a user of this name finds the invitation in the console, "
                "and accepts or declines it."
            )
        else:
            require(self.access, Action.MANAGE, changes.membership_of(user, scope, role))
            changes.set_role(user, scope, role)
            text = f"{username} is {role} of {scope}."
        messages.success(self.request, text)
        return redirect("console:members")


class NewMemberForm(RoleForm):
    with_key = forms.BooleanField(
        label="With a first API key",
        required=False,
        help_text="You send the key with the link. The playground needs none.",
    )


@at("members/new/", "member-new")
class NewMember(NewRow):
    resource = USERS
    form_class = NewMemberForm
    names = ("username", "email", "role")
    heading, button = "Invite a colleague", "Invite"
    intro = "You get a link with which your colleague sets a password and is logged in at once."

    def texts(self) -> dict[str, Any]:
        text = 'Your colleague has an account on this server? <a href="{}">Add it</a>.'
        return {"note": format_html(text, reverse("console:invitations-new"))}

    def save(self, form: ResourceForm) -> HttpResponse:
        user = USERS.create(self.access, {**form.columns, "is_service": False})
        link = USERS.act(self.access, USERS.action("link"), user)
        key = self._first_key(user) if form.cleaned_data["with_key"] else None
        return show_link(self, user, link, key)

    def _first_key(self, user: User) -> Any:
        project = projects_for(Access.of(user), user).first()
        if project is None:
            messages.warning(self.request, f"{user} may have no keys there: no key was made.")
            return None
        return KEYS.create(self.access, {"name": "first key", "owner": user, "project": project})


@at("invitations/", "invitations")
class OpenInvitations(Rows):
    """Invitations that wait for an answer: those of one's organisation, and those to oneself. New
    users who have not logged in yet, on whose pages there is another link."""

    resource = INVITATIONS
    note = "Invited users accept on their overview. To renew an invitation, invite again."

    def columns(self) -> Columns:
        return columns_of("name=username role where=scope invited_by expires=expires_at")

    def buttons(self) -> dict[str, str]:
        if not self.access.owns_scope:
            return {}
        pages = {"Invite a colleague": "member-new", "Add an existing user": "invitations-new"}
        return {text: reverse(f"console:{name}") for text, name in pages.items()}

    def sections(self) -> list[Table]:
        people = {"is_service": False, "is_active": True, "last_login": None}
        new = MEMBERSHIPS.rows(self.access).filter(**{f"user__{k}": v for k, v in people.items()})
        rows = [
            (reverse("console:member", args=[row.pk]), row, cells_of(row, _NEW))
            for row in new[:100]
            if self.access.may(Action.MANAGE, row.user)
        ]
        return [Table("New users who have not logged in yet", rows)]
