"""Invitations: a link for a new user, a role for an existing one, and what waits for an answer."""

from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import Max
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.keys import projects_for
from vinery_accounts.console.members import RoleForm, show_link
from vinery_accounts.console.page import Page, at
from vinery_accounts.console.rows import ButtonPage, ConfirmPage, NewRow, Question
from vinery_accounts.models import AuditEntry, User
from vinery_accounts.resources.base import require
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS


@at("members/invite/", "member-invite")
class Invite(NewRow):
    """A role for a user who exists. A user that the caller sees gets the role at once. Any other
    name gets an invitation: the page does not reveal which names exist."""

    needs = "is_leader"
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
    needs = "is_leader"
    resource = USERS
    form_class = NewMemberForm
    names = ("username", "email", "role")
    heading, button = "Invite a colleague", "Invite"
    intro = "You get a link with which your colleague sets a password and is logged in at once."

    def texts(self) -> dict[str, Any]:
        text = 'Your colleague has an account on this server? <a href="{}">Add it</a>.'
        return {"note": format_html(text, reverse("console:member-invite"))}

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
class OpenInvitations(Page):
    """Invitations that wait for an answer, and new users who have not logged in yet."""

    name, needs = "members", "is_leader"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        new = MEMBERSHIPS.rows(self.access).filter(
            user__last_login=None, user__is_service=False, user__is_active=True
        )
        rows = [row for row in new[:100] if self.access.may(Action.MANAGE, row.user)]
        ids = [str(row.user_id) for row in rows]
        links = AuditEntry.objects.filter(action="user.password_link", target_id__in=ids)
        lifetime = timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT)
        ends = links.order_by().values_list("target_id").annotate(ends=Max("created_at") + lifetime)
        expires_at = dict(ends)
        return super().get_context_data(**kwargs) | {
            "new": [(row, expires_at.get(user_id)) for row, user_id in zip(rows, ids, strict=True)],
            "invitations": INVITATIONS.rows(self.access) if self.access.owns_scope else (),
            "now": timezone.now(),
        }


@at("invitations/<int:row_id>/", "invitation", "again", "withdraw")
class ActOnInvitation(ConfirmPage):
    name = "members"
    resource = INVITATIONS
    questions = {
        "again": Question(
            "Renew the invitation of {row.username}?",
            "Its time begins again.",
            "The invitation of {row.username} is open for 14 days again.",
            "Renew",
            is_danger=False,
        ),
        "withdraw": Question(
            "Withdraw the invitation of {row.username}?",
            "It offers the role {row.role} of {row.scope}, and ends. To undo this, invite again.",
            "The invitation is withdrawn.",
        ),
    }

    def check(self) -> None:
        require(self.access, INVITATIONS.removal, self.row)

    def act(self) -> None:
        if self.does == "withdraw":
            INVITATIONS.remove(self.access, self.row)
        else:
            names = ("username", "role", "organization", "project")
            INVITATIONS.create(self.access, {name: getattr(self.row, name) for name in names})

    def back_address(self) -> str:
        return reverse("console:invitations")


@at("invitations/<int:row_id>/", "invitation", "accept", "decline")
class Answer(ButtonPage):
    """The answer of the invited user."""

    name = "overview"
    resource = INVITATIONS

    def act(self) -> Any:
        if self.does == "accept":
            return super().act()
        return INVITATIONS.remove(self.access, self.row)

    def done_text(self) -> str:
        if self.does == "accept":
            return f"You are {self.row.role} of {self.row.scope}."
        return f"You have declined the invitation to {self.row.scope}. It can be sent again."
