"""Invitations: a link for a new user, a role for an existing one, and what waits for an answer."""

import logging
from datetime import timedelta
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.mail import send_mail
from django.db.models import Max
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.keys import projects_for
from vinery_accounts.console.members import LeadersPage, RoleForm
from vinery_accounts.console.menu import moment
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ButtonPage, ConfirmPage, Question, RowPage
from vinery_accounts.models import AuditEntry, User
from vinery_accounts.resources.base import Conflict, Issued, require
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS

log: Final = logging.getLogger(__name__)

_MAX_NEW: Final = 100


@at("members/invite/", "member-invite")
class Invite(LeadersPage, FormPage):
    """A role for a user who exists. A user that the caller sees gets the role at once. Any other
    name gets an invitation: the page does not reveal which names exist."""

    heading, button = "Add an existing user", "Add"
    intro = (
        "A member of your organisation gets the role at once. Any other user finds an invitation "
        "in the console. For privacy, this page does not show whether a user of that name exists."
    )

    def texts(self) -> dict[str, Any]:
        text = 'The user has no account yet? <a href="{}">Create one</a>.'
        return {"note": format_html(text, reverse("console:member-new"))}

    def form_of(self, data: QueryDict | None) -> RoleForm:
        return RoleForm(INVITATIONS, self.access, data, ("username", "role"))

    def save(self, form: RoleForm) -> HttpResponse:
        username, role, scope = (form.cleaned_data[name] for name in ("username", "role", "where"))
        user = self.access.rows(User).filter(username=username).first()
        if user is None:
            columns = {"username": username, "role": role, scope._meta.model_name: scope}
            INVITATIONS.create(self.access, columns)
            text = (
                f"{username} is invited: a user of this name finds the invitation in the console, "
                "and accepts or declines it."
            )
        else:
            membership = changes.membership_of(user, scope, role)
            require(self.access, Action.MANAGE, membership)
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
class NewMember(LeadersPage, FormPage):
    heading, button = "Invite a colleague", "Invite"
    intro = "You get a link with which your colleague sets a password and is logged in at once."

    def texts(self) -> dict[str, Any]:
        text = 'Your colleague has an account on this server? <a href="{}">Add it</a>.'
        return {"note": format_html(text, reverse("console:member-invite"))}

    def form_of(self, data: QueryDict | None) -> RoleForm:
        return NewMemberForm(USERS, self.access, data, ("username", "email", "role"))

    def save(self, form: RoleForm) -> HttpResponse:
        scope = form.cleaned_data["where"]
        values = {name: form.cleaned_data[name] for name in ("username", "email", "role")}
        scopes = {"is_service": False, scope._meta.model_name: scope}
        user = USERS.create(self.access, values | scopes)
        return show_link(self, user, self._first_key(user) if form["with_key"].value() else None)

    def _first_key(self, user: User) -> Issued | None:
        project = projects_for(Access.of(user), user).first()
        if project is None:
            messages.warning(self.request, f"{user} may have no keys there: no key was made.")
            return None
        new: Issued = KEYS.create(
            self.access, {"name": "first key", "owner": user, "project": project}
        )
        return new


@at("members/<int:row_id>/link/", "member-link")
class LinkForMember(RowPage):
    """A new link with which a new user sets a password."""

    resource = MEMBERSHIPS

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect("console:member", self.row.pk)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return show_link(self, self.row.user)
        except Conflict as error:
            messages.error(request, str(error))
            return redirect("console:member", self.row.pk)


def show_link(page: Page, user: User, key: Issued | None = None) -> HttpResponse:
    link = USERS.act(page.access, USERS.action("link"), user)
    text = (
        "<strong>Send this link to {} alone.</strong> With it they set a password and sign in. It "
        "works once, until {}. Any holder of the link can use it.{}"
    )
    address = page.base_url() + link["path"]
    sent = f" It was also sent to {user.email}." if _is_mailed(user, address) else ""
    context = Page.get_context_data(
        page,
        heading=f"A link for {user}",
        text=format_html(text, user, moment(link["expires_at"]), sent),
        secret=address,
        copy="Copy the link",
        key=key,
        back=reverse("console:members"),
        done="Done",
    )
    return render(page.request, "console/issued.html", context)


def _is_mailed(user: User, address: str) -> bool:
    """Send the link to the user, where this server sends such mails."""
    if not (settings.VINERY_PASSWORD_RESET and user.email):
        return False
    text = (
        f"You are invited to a Vinery server, with the user name {user}. Choose a password:\n\n"
        f"{address}\n\nThe link works once. If you expected no invitation, ignore this mail.\n"
    )
    try:
        send_mail("Vinery: your invitation", text, None, [user.email])
    except OSError as error:  # of the connection, or of the mail server
        log.warning("An invitation was not sent by mail: %s", type(error).__name__)
        return False
    return True


@at("invitations/", "invitations")
class OpenInvitations(LeadersPage):
    """Invitations that wait for an answer, and new users who have not logged in yet."""

    name = "members"
    template_name = "console/invitations.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        new = MEMBERSHIPS.rows(self.access).filter(
            user__last_login=None, user__is_service=False, user__is_active=True
        )
        rows = [row for row in new[:_MAX_NEW] if self.access.may(Action.MANAGE, row.user)]
        links = AuditEntry.objects.filter(
            action="user.password_link", target_id__in=[str(row.user_id) for row in rows]
        ).order_by()
        made_at = dict(links.values_list("target_id").annotate(Max("created_at")))
        lifetime = timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT)
        return super().get_context_data(**kwargs) | {
            "new": [
                (row, (at_ := made_at.get(str(row.user_id))) and at_ + lifetime) for row in rows
            ],
            "invitations": INVITATIONS.rows(self.access) if self.access.owns_scope else (),
            "link": self.base_url() + reverse("console:overview"),
            "now": timezone.now(),
        }


@at("invitations/<int:row_id>/again/", "invitation-again")
class InviteAgain(ButtonPage):
    """Begins the time of an invitation again."""

    name = "members"
    resource = INVITATIONS
    does = "again"

    def act(self) -> None:
        row = self.row
        columns = {
            "username": row.username,
            "role": row.role,
            row.scope._meta.model_name: row.scope,
        }
        INVITATIONS.create(self.access, columns)

    def done_text(self) -> str:
        return f"The invitation of {self.row.username} is open for 14 days again."

    def back_address(self) -> str:
        return reverse("console:invitations")


@at("invitations/<int:row_id>/withdraw/", "invitation-withdraw")
class Withdraw(ConfirmPage):
    name = "members"
    resource = INVITATIONS
    does = "remove"
    questions = {
        "remove": Question(
            "Withdraw the invitation of {row.username}?",
            "It was for the role {row.role} of {row.scope}.",
            "The invitation is withdrawn.",
            "Withdraw",
        )
    }


@at("invitations/<int:row_id>/", "invitation", "accept", "decline")
class Answer(ButtonPage):
    """The answer of the invited user."""

    name = "overview"
    resource = INVITATIONS

    def act(self) -> None:
        if self.does == "accept":
            super().act()
        else:
            INVITATIONS.remove(self.access, self.row)

    def done_text(self) -> str:
        scope = self.row.scope
        if self.does == "accept":
            return f"You are {self.row.role} of {scope}."
        return f"You have declined the invitation to {scope}."
