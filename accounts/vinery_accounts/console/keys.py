"""Keys: the list with states, and the pages that create, pause, rotate and revoke keys."""

import re
from datetime import datetime
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.db.models import Exists, OuterRef
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from vinery_accounts.access.access import Access, Action
from vinery_accounts.access.served import for_example, served_to, visible_models
from vinery_accounts.console import rows
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ChangeRow, ConfirmPage, FilterForm, RowPage
from vinery_accounts.models import ApiKey, KeyState, Project, Scope, User
from vinery_accounts.models.keys import usual_scopes
from vinery_accounts.resources.base import Issued
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.keys import KEYS


class NamesField(forms.MultipleChoiceField):
    """Names from a list. Other names are checked when stored: the error says which is near."""

    widget = forms.CheckboxSelectMultiple

    def valid_value(self, value: str) -> bool:
        return True


class KeyForm(ResourceForm):
    rare = ("note", "rotate_every_days", "rotation_grace_days", "endpoints", "networks")
    models = NamesField(required=False, help_text="The models that the key may use; none: all.")
    endpoints = forms.MultipleChoiceField(
        choices=[(name, name) for name in settings.VINERY_KEY_ENDPOINTS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="The endpoints that the key may call; none: all.",
    )

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        seen = served_to(self.row.project_id) if self.row else visible_models(self.access)
        known = {each.name: f"{each.name} (alias)" if each.is_alias else each.name for each in seen}
        kept = self.row.allowed_models if self.row else ()
        gone = {name: f"{name} (removed)" for name in kept if name not in known}
        field = self.fields["models"]
        assert isinstance(field, NamesField)
        field.choices = [*known.items(), *gone.items()]
        if not field.choices:
            field.help_text = "No model is served yet: the key may use all."


class NewKeyForm(KeyForm):
    field_order = ("name", "owner", "project", "expires_at", "scopes", "models")
    owner = forms.CharField(
        required=False,
        max_length=150,
        help_text="The name of a user or service account. Empty: yourself.",
    )
    project = forms.ModelChoiceField(Project.objects.none(), empty_label=None)

    def __init__(self, access: Access, projects: Any, data: Any = None) -> None:
        super().__init__(KEYS, access, data, initial={"scopes": usual_scopes()})
        field = self.fields["project"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = projects
        if not access.is_leader:
            del self.fields["owner"]

    def clean_owner(self) -> User | None:
        name = self.cleaned_data["owner"]
        owner = self.access.rows(User).filter(username=name).first()
        if name and owner is None:
            raise forms.ValidationError("There is no user of this name, or you may not see it.")
        return owner


class KeysPage(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = {"list": self.list_address(), "query": self.view()}
        return super().get_context_data(**kwargs) | context

    def view(self) -> str:
        asked = self.request.GET
        query = urlencode({k: asked[k] for k in (*KEYS.page_filters, "page") if asked.get(k)})
        return f"?{query}" if query else ""

    def list_address(self) -> str:
        return reverse("console:keys") + self.view()

    def show_once(self, new: Issued) -> HttpResponse:
        allowed, served = new.row.allowed_models, served_to(new.row.project_id)
        context = {
            "key": new.row,
            "secret": new.secret,
            "base_url": f"{self.base_url()}/v1",
            "api_url": f"{self.base_url()}/api",
            "model": for_example(e for e in served if not allowed or e.name in allowed),
        }
        page = KeysPage.get_context_data(self, **context)
        return render(self.request, "console/key_made.html", page)


@at("keys/", "keys")
class Keys(KeysPage):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        now = timezone.now()
        form = FilterForm(KEYS, self.access, self.request.GET)
        found = rows.page_of(form.narrow(KEYS.rows(self.access)).order_by("-pk"), self.request)
        keys = found["rows"]
        shown = self.access.rows_to_limit(ApiKey).filter(pk__in=[key.pk for key in keys])
        owners = Access.when_active(key.owner for key in keys if Scope.MANAGE in key.scopes)
        return super().get_context_data(**kwargs) | {
            **found,
            "form": form,
            "rows": [self._row(key, now, owners.get(key.owner_id)) for key in keys],
            "limitable": set(shown.order_by().values_list("pk", flat=True)),
            "may_make": projects_for(self.access, self.user).exists(),
        }

    def _row(self, key: ApiKey, now: datetime, owner: Access | None) -> dict[str, Any]:
        state = key.state_at(now)
        is_over = state in (KeyState.REVOKED, KeyState.EXPIRED)
        is_paused = key.paused_at is not None
        may_manage = not is_over and self.access.may(Action.MANAGE, key)
        return {
            "key": key,
            "state": state,
            "is_overdue": not is_over and key.is_rotation_overdue(now),
            "may_stop": state is not KeyState.REVOKED and self.access.may(Action.STOP, key),
            "may_pause": not (is_over or is_paused),
            "may_resume": may_manage and is_paused and self.access.may(Action.RESUME, key),
            "may_rotate": may_manage
            and not (is_paused or key.replaced_by_id)
            and self.access.may_act_as(key, owner),
        }


@at("keys/new/", "key-new")
class MakeKey(KeysPage, FormPage):
    template_name = "console/key_new.html"

    @cached_property
    def projects(self) -> Any:
        return projects_for(self.access, self.user)

    def form_of(self, data: QueryDict | None) -> NewKeyForm:
        form = NewKeyForm(self.access, self.projects, data)
        if "owner" in form.fields:
            form.fields["owner"].initial = self.request.GET.get("owner", "")
        return form

    def save(self, form: NewKeyForm) -> HttpResponse:
        columns = form.columns
        columns["owner"] = columns.get("owner") or self.user
        return self.show_once(KEYS.create(self.access, columns))


class OneKeyPage(KeysPage, RowPage):
    resource = KEYS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"key": self.row}

    def row_address(self, row: ApiKey) -> str:
        return self.list_address()

    def back_address(self) -> str:
        return self.list_address()


@at("keys/<int:row_id>/", "key")
class KeyPage(OneKeyPage, ChangeRow):
    template_name = "console/key.html"
    form_class = KeyForm
    done = "{row.name} is changed."

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        state = self.row.state_at(timezone.now())
        context = super().get_context_data(**kwargs)
        is_over = state in (KeyState.REVOKED, KeyState.EXPIRED)
        may_change = context["may_change"] and self.access.may_act_as(self.row) and not is_over
        return context | {"state": state, "may_change": may_change}


@at("keys/<int:row_id>/", "key", "pause", "resume", "rotate", "revoke")
class ActOnKey(OneKeyPage, ConfirmPage):
    def issued(self, new: Issued) -> HttpResponse:
        return self.show_once(new)


def projects_for(access: Access, user: User) -> Any:
    """Return the projects in which the caller may make keys of the user, the user's own first."""
    active = access.rows(Project).filter(is_active=True, organization__is_active=True)
    own = Exists(user.memberships.filter(organization=OuterRef("organization")))
    found = active.select_related("organization").order_by(own.desc(), "organization__name", "name")
    may = access.may
    ids = [each.pk for each in found if may(Action.MANAGE, ApiKey(owner=user, project=each))]
    return found.filter(pk__in=ids)


# Of each client its name in an address, its name and its settings.
_CLIENT: Final = re.compile(r"^=== (.+?): (.+)\n((?:.|\n)+?)\n+(?====|\Z)", re.MULTILINE)


@at("connect/", "connect")
class Connect(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        root, model = self.base_url(), for_example(visible_models(self.access))
        values = {"root": root, "base": f"{root}/v1", "key": "vny_...", "model": model}
        clients = _CLIENT.findall(render_to_string("console/clients.txt", values))
        chosen = self.request.GET.get("client")
        client = next((each for each in clients if each[0] == chosen), clients[0])
        return super().get_context_data(**kwargs) | values | {"clients": clients, "client": client}
