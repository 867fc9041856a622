"""Invitations: a link for a new user, a role for an existing one, and what waits for an answer."""

from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.keys import projects_for
from vinery_accounts.console.members import RoleForm, show_link
from vinery_accounts.console.page import at
from vinery_accounts.console.rows import Columns, NewRow, Rows, Table, cells_of
from vinery_accounts.models import User
from vinery_accounts.resources.base import columns_of, require
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS

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
