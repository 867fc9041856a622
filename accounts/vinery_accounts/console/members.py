"""Members: the roles of users, and service accounts."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.generated import Columns, Rows
from vinery_accounts.console.organization import ScopeField
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ChangeRow, ConfirmPage, Question
from vinery_accounts.models import Membership, Role, User
from vinery_accounts.resources.base import Resource, columns_of, require
from vinery_accounts.resources.forms import ResourceForm
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
        rows = super().listed().filter(user__is_service=True)
        counted: QuerySet[Any] = rows.annotate(num_keys=keys)
        return counted

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
