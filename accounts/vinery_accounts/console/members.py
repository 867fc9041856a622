"""Members: roles of users, new users and service accounts, and invitations."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.organization import ScopeField
from vinery_accounts.console.page import FormPage, Page
from vinery_accounts.console.rows import (
    ButtonPage,
    ChangeRow,
    ConfirmPage,
    ListPage,
    Question,
    RowPage,
)
from vinery_accounts.models import Membership, Role, User
from vinery_accounts.resources.base import Conflict, require
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS

_NEW: Final = ("username", "email", "is_service", "role")


class MemberFilterForm(forms.Form):
    """Filters of the list. An invalid value is ignored."""

    search = forms.CharField(
        required=False,
        max_length=255,
        widget=forms.TextInput({"type": "search", "placeholder": "name or e-mail", "size": 20}),
    )
    role = forms.ChoiceField(required=False, choices=[("", "any"), *Role.choices])

    def wanted(self) -> Iterator[tuple[str, Any]]:
        self.is_valid()
        yield from ((name, value) for name, value in self.cleaned_data.items() if value)
        if (project_id := id_of(self.data.get("project", ""))) is not None:
            yield "project_id", project_id


class Members(ListPage):
    """`/console/members/`; `project=7` shows the roles in that project alone."""

    name = "members"
    template_name = "console/members.html"
    resource = MEMBERSHIPS
    ordering = ("user__username", "id")
    filter_form = MemberFilterForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {
            "project_id": id_of(self.request.GET.get("project", "")),
            "invitations": INVITATIONS.rows(self.access) if self.owns else (),
            "owns": self.owns,
        }

    @cached_property
    def owns(self) -> bool:
        roles = {*self.access.organizations.values(), *self.access.projects.values()}
        return self.access.is_superuser or Role.OWNER in roles

    def shown(self, row: Membership) -> dict[str, Any]:
        is_led = self.access.leads(row.organization_id, row.project_id)
        protected = getattr(row, "has_second_factor", False)
        return {
            "membership": row,
            "second_factor": ("on" if protected else "off") if is_led else "",
            "may_open": is_led,
        }


class InviteForm(ResourceForm):
    field_order = ("username", "where", "role")

    def __init__(self, access: Access, data: Any = None) -> None:
        super().__init__(INVITATIONS, ("username", "role"), data, initial={"role": Role.MEMBER})
        self.fields["where"] = ScopeField(access)
        self.order_fields(self.field_order)


class NewMemberForm(ResourceForm):
    field_order = ("username", "email", "where", "role", "is_service")

    def __init__(self, access: Access, data: Any = None) -> None:
        super().__init__(USERS, _NEW, data, initial={"role": Role.MEMBER})
        self.fields["where"] = ScopeField(access)
        self.order_fields(self.field_order)


class Invite(FormPage):
    """`/console/members/invite/`: a role for a user who exists. A user that the caller sees gets
    the role at once. Any other name gets an invitation, so that the page does not reveal which
    names exist."""

    name = "members"
    heading, button = "Add an existing user", "Add"

    def texts(self) -> dict[str, Any]:
        text = 'The user has no account yet? <a href="{}">Create one</a>.'
        return {
            "intro": "A member of your organisation gets the role at once. Any other user finds an "
            "invitation in the console. For privacy, this page does not show whether a user of "
            "that name exists.",
            "note": format_html(text, reverse("console:member-new")),
        }

    def form_of(self, data: QueryDict | None) -> InviteForm:
        return InviteForm(self.access, data)

    def save(self, form: InviteForm) -> HttpResponse:
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


class NewMember(FormPage):
    """`/console/members/new/`: a new user, or a service account."""

    name = "members"
    heading, button = "Create a user", "Create"

    def texts(self) -> dict[str, Any]:
        return {
            "intro": "You get a link with which the user sets a password. A service account gets "
            "none: it owns keys and cannot sign in."
        }

    def form_of(self, data: QueryDict | None) -> NewMemberForm:
        return NewMemberForm(self.access, data)

    def save(self, form: NewMemberForm) -> HttpResponse:
        scope = form.cleaned_data["where"]
        values = {**form.columns, scope._meta.model_name: scope}
        user = USERS.create(self.access, values)
        if user.is_service:
            text = f"The service account {user} is created. Create a key for it under Keys."
            messages.success(self.request, text)
            return redirect("console:members")
        return show_link(self, user)


class Member(ChangeRow):
    """`/console/members/<id>/`: one role of a user, and what can be done."""

    name = "members"
    template_name = "console/member.html"
    resource = MEMBERSHIPS
    names = ("role",)
    done = "{row}."

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        membership, user = self.row, self.row.user
        may_manage = self.access.may(Action.MANAGE, user)
        return super().get_context_data(**kwargs) | {
            "member": user,
            "may_manage": may_manage,
            "may_link": may_manage and not user.is_service and user.last_login is None,
            "is_led": self.access.leads(membership.organization_id, membership.project_id),
            "others": MEMBERSHIPS.rows(self.access).filter(user=user).exclude(pk=membership.pk),
        }

    def row_address(self, row: Membership) -> str:
        return reverse("console:members")


class ActOnMember(ConfirmPage):
    """`/console/members/<id>/remove/`, `deactivate/` and `activate/`."""

    name = "members"
    resource = MEMBERSHIPS
    questions = {
        "remove": Question(
            "Remove {row.user} from {row.scope}?",
            "{row.user} loses the role {row.role} there, and keys that they may no longer have are "
            "paused. The account stays.",
            "Remove",
            "{row.user} has no role in {row.scope} any more.",
        ),
        "deactivate": Question(
            "Deactivate {row.user}?",
            "{row.user} is signed out and cannot sign in. Their keys, in all projects, are refused "
            "within a second, and running requests end. This can be undone.",
            "Deactivate",
            "{row.user} is deactivated.",
        ),
        "activate": Question(
            "Activate {row.user}?",
            "{row.user} may sign in again, and their keys work again.",
            "Activate",
            "{row.user} is active.",
            is_danger=False,
        ),
    }

    def act(self) -> None:
        if self.does == "remove":
            super().act()
        else:
            USERS.act(self.access, USERS.action(self.does), self.row.user)

    def check(self) -> None:
        require(self.access, Action.MANAGE, self.row if self.does == "remove" else self.row.user)


class LinkForMember(RowPage):
    """`/console/members/<id>/link/`: a new link with which a new user sets a password."""

    name = "members"
    resource = MEMBERSHIPS

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect("console:member", self.row.pk)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return show_link(self, self.row.user)
        except Conflict as error:
            messages.error(request, str(error))
            return redirect("console:member", self.row.pk)


def show_link(page: Page, user: User) -> HttpResponse:
    link = USERS.act(page.access, USERS.action("link"), user)
    text = (
        "<strong>Send this link to {} alone.</strong> With it they set a password and sign in. It "
        "works once, until {} UTC. Any holder of the link can use it."
    )
    context = Page.get_context_data(
        page,
        heading=f"A link for {user}",
        text=format_html(text, user, f"{link['expires_at']:%Y-%m-%d %H:%M}"),
        secret=page.base_url() + link["path"],
        copy="Copy the link",
        back=reverse("console:members"),
        done="Done",
    )
    return render(page.request, "console/issued.html", context)


class Withdraw(ConfirmPage):
    """`/console/members/invitations/<id>/withdraw/`."""

    name = "members"
    resource = INVITATIONS
    does = "remove"
    questions = {
        "remove": Question(
            "Withdraw the invitation of {row.username}?",
            "It was for the role {row.role} of {row.scope}.",
            "Withdraw",
            "The invitation is withdrawn.",
        )
    }


class Answer(ButtonPage):
    """`/console/invitations/<id>/accept/` and `decline/`: of the user who is invited."""

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
