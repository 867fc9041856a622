"""Members: roles of users, new users and service accounts, and invitations."""

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.generated import Columns, Rows, Table, cells_of
from vinery_accounts.console.menu import moment
from vinery_accounts.console.organization import ScopeField
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ButtonPage, ChangeRow, ConfirmPage, Question, RowPage
from vinery_accounts.models import Membership, Role, User
from vinery_accounts.resources.base import Conflict, Resource, columns_of, require
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS

_NEW: Final = ("username", "email", "is_service", "role")
_COLUMNS: Final = columns_of(
    "user email=user.email role where=scope last_sign-in active=user.is_active",
    **{
        "last_sign-in": lambda row: (
            "service account" if row.user.is_service else row.user.last_login or "never"
        )
    },
)
_INVITED: Final = columns_of("user=username role where=scope invited_by expires=expires_at")


@at("members/", "members")
class Members(Rows):
    """`project=7` shows the roles in that project alone."""

    resource = MEMBERSHIPS
    title = "Members"
    ordering = ("user__username", "id")
    inputs = {
        "search": {"type": "search", "placeholder": "name or e-mail", "size": 20},
        "role": {},
        "project": {"type": "hidden"},
    }
    hint = "Search for part of a name or an e-mail address."
    note = "Owners manage members, admins manage service accounts."

    def columns(self) -> Columns:
        return _COLUMNS | {"two-factor_authentication": self._second_factor}

    def _second_factor(self, row: Membership) -> str:
        if row.user.is_service or not self.may_open(row):
            return ""
        return "on" if getattr(row, "has_second_factor", False) else "off"

    def row_address(self, row: Membership) -> str:
        return reverse("console:member", args=[row.pk])

    def buttons(self) -> dict[str, str]:
        """Return the pages of new users, by their texts."""
        new = reverse("console:member-new")
        if not self.access.owns_scope:
            return {"Create a service account": new}
        return {"Create a user": new, "Add an existing user": reverse("console:member-invite")}

    def may_open(self, row: Membership) -> bool:
        return self.access.leads(row.organization_id, row.project_id)

    def sections(self) -> list[Table]:
        rows = INVITATIONS.rows(self.access) if self.access.owns_scope else ()
        shown = [
            (reverse("console:invitation-withdraw", args=[row.pk]), row, cells_of(row, _INVITED))
            for row in rows
        ]
        return [Table("Open invitations", shown, "Withdraw")]


class RoleForm(ResourceForm):
    """A form of a user who gets a role."""

    field_order = ("username", "email", "where", "role", "is_service")

    def __init__(self, resource: Resource[Any], access: Access, *args: Any) -> None:
        super().__init__(resource, access, *args, initial={"role": Role.MEMBER})
        self.fields["where"] = ScopeField(access)
        self.order_fields(self.field_order)


@at("members/invite/", "member-invite")
class Invite(FormPage):
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


@at("members/new/", "member-new")
class NewMember(FormPage):
    """A new user, or a service account."""

    heading, button = "Create a user", "Create"
    intro = (
        "You get a link with which the user sets a password. A service account gets none: it owns "
        "keys and cannot sign in."
    )

    def form_of(self, data: QueryDict | None) -> RoleForm:
        return RoleForm(USERS, self.access, data, _NEW)

    def save(self, form: RoleForm) -> HttpResponse:
        scope = form.cleaned_data["where"]
        values = {**form.columns, scope._meta.model_name: scope}
        user = USERS.create(self.access, values)
        if user.is_service:
            text = f"The service account {user} is created. Create a key for it under Keys."
            messages.success(self.request, text)
            return redirect("console:members")
        return show_link(self, user)


@at("members/<int:row_id>/", "member")
class Member(ChangeRow):
    """One role of a user, and the possible actions."""

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


@at("members/<int:row_id>/", "member", "remove", "deactivate", "activate")
class ActOnMember(ConfirmPage):
    resource = MEMBERSHIPS
    questions = {
        "remove": Question(
            "Remove {row.user} from {row.scope}?",
            "{row.user} loses the role {row.role} there, and keys that they may no longer have are "
            "paused. The account stays.",
            "{row.user} has no role in {row.scope} any more.",
        ),
        "deactivate": Question(
            "Deactivate {row.user}?",
            "{row.user} is signed out and cannot sign in. Their keys, in all projects, are refused "
            "within a second, and running requests end. This can be undone.",
            "{row.user} is deactivated.",
        ),
        "activate": Question(
            "Activate {row.user}?",
            "{row.user} may sign in again, and their keys work again.",
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


def show_link(page: Page, user: User) -> HttpResponse:
    link = USERS.act(page.access, USERS.action("link"), user)
    text = (
        "<strong>Send this link to {} alone.</strong> With it they set a password and sign in. It "
        "works once, until {}. Any holder of the link can use it."
    )
    context = Page.get_context_data(
        page,
        heading=f"A link for {user}",
        text=format_html(text, user, moment(link["expires_at"])),
        secret=page.base_url() + link["path"],
        copy="Copy the link",
        back=reverse("console:members"),
        done="Done",
    )
    return render(page.request, "console/issued.html", context)


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
