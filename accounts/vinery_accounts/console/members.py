"""Members: roles of users, invitations of new and of existing users, and service accounts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.generated import Columns, Rows
from vinery_accounts.console.keys import projects_for
from vinery_accounts.console.menu import moment
from vinery_accounts.console.organization import ScopeField
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ButtonPage, ChangeRow, ConfirmPage, Question, RowPage
from vinery_accounts.models import AuditEntry, Membership, Role, User
from vinery_accounts.resources.base import Conflict, Issued, Resource, columns_of, require
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.organizations import INVITATIONS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS

_COLUMNS: Final = columns_of("user role where=scope")
_LED_COLUMNS: Final = columns_of(
    "email=user.email active=user.is_active",
    **{"last_sign-in": lambda row: row.user.last_login or "never"},
)


class LeadersPage(Page):
    """A page of members for those who lead an organisation or a project."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated and not self.access.is_leader:
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)


class Roles(Rows):
    resource = MEMBERSHIPS
    ordering = ("user__username", "id")
    inputs = {
        "search": {"type": "search", "placeholder": "name or e-mail", "size": 20},
        "role": {},
        "project": {"type": "hidden"},
    }
    hint = "Search for part of a name or an e-mail address."

    def row_address(self, row: Membership) -> str:
        return reverse("console:member", args=[row.pk])

    def may_open(self, row: Membership) -> bool:
        return self.access.leads(row.organization_id, row.project_id)


@at("members/", "members")
class Members(Roles):
    """`project=7` shows the roles in that project alone."""

    title = "Members"
    note = "Owners manage members, admins manage service accounts."

    def listed(self) -> QuerySet[Membership]:
        return super().listed().filter(user__is_service=False)

    def columns(self) -> Columns:
        """Return what members may know of each other; those who lead see more."""
        if not self.access.is_leader:
            return _COLUMNS
        seen = {name: self._if_led(column) for name, column in _LED_COLUMNS.items()}
        return _COLUMNS | seen | {"two-factor_authentication": self._if_led(_second_factor)}

    def _if_led(self, column: Callable[[Membership], Any]) -> Callable[[Membership], Any]:
        return lambda row: column(row) if self.may_open(row) else ""

    def buttons(self) -> dict[str, str]:
        """Return the pages of new users, by their texts."""
        if not self.access.owns_scope:
            return {}
        return {
            "Invite a colleague": reverse("console:member-new"),
            "Add an existing user": reverse("console:member-invite"),
            "Open invitations": reverse("console:invitations"),
        }


def _second_factor(row: Membership) -> str:
    return "on" if getattr(row, "has_second_factor", False) else "off"


@at("service-accounts/", "service-accounts")
class ServiceAccounts(Roles):
    title = "Service accounts"
    note = (
        "A service account is a program's: it owns keys, and cannot log in. Its keys stay when a "
        "person leaves."
    )

    def listed(self) -> QuerySet[Any]:
        keys = Count("user__api_keys", filter=Q(user__api_keys__revoked_at=None))
        found: QuerySet[Any] = super().listed().filter(user__is_service=True)
        rows: QuerySet[Any] = found.annotate(num_keys=keys)
        return rows

    def columns(self) -> Columns:
        return _COLUMNS | columns_of("keys=num_keys active=user.is_active")

    def buttons(self) -> dict[str, str]:
        return {"Create a service account": reverse("console:service-account-new")}


class RoleForm(ResourceForm):
    """A form of a user who gets a role."""

    field_order = ("username", "email", "where", "role")

    def __init__(self, resource: Resource[Any], access: Access, *args: Any) -> None:
        super().__init__(resource, access, *args, initial={"role": Role.MEMBER})
        self.fields["where"] = ScopeField(access)
        self.order_fields(self.field_order)


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


@at("service-accounts/new/", "service-account-new")
class NewServiceAccount(LeadersPage, FormPage):
    heading, button = "Create a service account", "Create"
    intro = "A program's account: it owns keys and cannot log in. Next you create its first key."

    def form_of(self, data: QueryDict | None) -> RoleForm:
        return RoleForm(USERS, self.access, data, ("username", "role"))

    def save(self, form: RoleForm) -> HttpResponse:
        scope = form.cleaned_data["where"]
        values = {name: form.cleaned_data[name] for name in ("username", "role")}
        scopes = {"is_service": True, scope._meta.model_name: scope}
        user = USERS.create(self.access, values | scopes)
        messages.success(self.request, f"The service account {user} is created.")
        return redirect(address_of_new_key(user))


def address_of_new_key(user: User) -> str:
    return f"{reverse('console:key-new')}?{urlencode({'owner': user.get_username()})}"


@at("members/<int:row_id>/", "member")
class Member(LeadersPage, ChangeRow):
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
            "new_key": address_of_new_key(user),
            "others": MEMBERSHIPS.rows(self.access).filter(user=user).exclude(pk=membership.pk),
        }

    def row_address(self, row: Membership) -> str:
        return reverse("console:service-accounts" if row.user.is_service else "console:members")


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


def show_link(page: Page, user: User, key: Issued | None = None) -> HttpResponse:
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
        key=key,
        back=reverse("console:members"),
        done="Done",
    )
    return render(page.request, "console/issued.html", context)


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


_MAX_NEW: Final = 100


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
