"""Keys: the list with their states, and the pages that create, pause, rotate and revoke them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from accounts.console.page import Page
from accounts.models import ApiKey, KeyState, Project, Scope, User
from accounts.models.keys import usual_scopes
from accounts.resources.base import Conflict, Issued
from accounts.resources.forms import ResourceForm
from accounts.resources.keys import KEYS
from accounts.services.access import Access, Action

_ROTATION: Final = ("rotate_every_days", "rotation_grace_days")
_ROWS: Final = 50
_VIEW: Final = ("search", "state", "before", "after")
_SENT: Final = "console_forms_sent"
_GRACES: Final = [
    ("0", "at once"),
    ("3600", "in an hour"),
    ("86400", "in a day"),
    ("604800", "in a week"),
]


class KeyFilterForm(forms.Form):
    """Filters of the list. An invalid value is shown at its field, and ignored."""

    search = forms.CharField(
        required=False,
        max_length=255,
        widget=forms.TextInput(
            {"type": "search", "placeholder": "name, key, owner or project", "size": 28}
        ),
    )
    state = forms.ChoiceField(
        required=False, choices=[("", "any"), *((each.value, each.value) for each in KeyState)]
    )

    @property
    def is_used(self) -> bool:
        """Whether any filter is set."""
        return self.is_bound and any(self._wanted().values())

    def apply(self, rows: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        """Return the keys that match."""
        for name, value in self._wanted().items():
            rows = KEYS.filters().narrow(rows, name, value) if value else rows
        return rows

    def _wanted(self) -> dict[str, str]:
        self.is_valid()
        return self.cleaned_data


@dataclass(frozen=True, slots=True)
class Slice:
    """A page of a list of keys, the newest first, and whether there are newer and older ones."""

    keys: list[ApiKey]
    has_newer: bool
    has_older: bool

    @classmethod
    def of(cls, rows: QuerySet[ApiKey], query: QueryDict) -> Slice:
        """Return the keys before or after the key in the address. New keys shift no page, and
        no page is empty while there are keys."""
        after, before = _id_in(query, "after"), _id_in(query, "before")
        if after:
            found = list(rows.filter(pk__gt=after).order_by("pk")[: _ROWS + 1])
            if len(found) > _ROWS:
                return cls(found[:_ROWS][::-1], has_newer=True, has_older=True)
        elif before:
            found = list(rows.filter(pk__lt=before).order_by("-pk")[: _ROWS + 1])
            if found:
                return cls(found[:_ROWS], has_newer=True, has_older=len(found) > _ROWS)
        found = list(rows.order_by("-pk")[: _ROWS + 1])
        return cls(found[:_ROWS], has_newer=False, has_older=len(found) > _ROWS)


class NewKeyForm(ResourceForm):
    """The fields of a new key."""

    field_order = ("name", "project", "expires_at", *_ROTATION, "scopes")
    project = forms.ModelChoiceField(Project.objects.none(), empty_label=None)
    # A reload of the page that shows the secret sends the form again.
    once = forms.CharField(widget=forms.HiddenInput, max_length=64)

    def __init__(self, projects: Any, data: Any = None) -> None:
        initial = {"scopes": usual_scopes(), "once": secrets.token_urlsafe(12)}
        names = [name for name in KEYS.writable() if name != "owner"]
        super().__init__(KEYS, names, data, initial=initial)
        field = self.fields["project"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = projects


class KeysPage(Page):
    """A page about keys."""

    name = "keys"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the address of the list, and the query string that forms carry for it."""
        view = self.view()
        query = f"?{view}" if view else ""
        return super().get_context_data(**kwargs) | {"list": self.list_address(), "view": query}

    def view(self, **changes: str) -> str:
        """Return the filters and the page of the list as a query string."""
        query = QueryDict(mutable=True)
        kept = {name: self.request.GET.get(name, "") for name in _VIEW} | changes
        query.update({name: value for name, value in kept.items() if value})
        return query.urlencode()

    def list_address(self) -> str:
        """Return the address of the list with its filters and page."""
        view = self.view()
        return reverse("console:keys") + (f"?{view}" if view else "")

    def key(self) -> ApiKey:
        """Return the key of the address. Raises `Http404` for one that the user may not see."""
        return get_object_or_404(KEYS.rows(self.access), pk=self.kwargs["key_id"])

    def act(self, name: str, **values: Any) -> Any:
        """Run an action on the key of the address. Raises `PermissionDenied` and `Conflict`."""
        return KEYS.act(self.access, KEYS.action(name), self.key(), **values)

    def show_once(self, new: Issued) -> HttpResponse:
        """Return the page with the secret, which is not stored."""
        self.template_name = "console/key_made.html"
        base_url = settings.VINERY_PUBLIC_URL or self.request.build_absolute_uri("/").rstrip("/")
        context = {
            "key": new.row,
            "secret": new.secret,
            "base_url": f"{base_url}/v1",
            "model": next(iter(new.row.allowed_models), "") or self._model(),
        }
        return self.render_to_response(self.get_context_data(**context))

    def _model(self) -> str:
        """Return a model that the user's keys have used, so that the example works."""
        used = self.access.keys_seen().exclude(last_used_model="").order_by("-last_used_at")
        return used.values_list("last_used_model", flat=True).first() or "YOUR-MODEL"


class Keys(KeysPage):
    """`/console/keys/`."""

    template_name = "console/keys.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the visible keys, the newest first, and the allowed actions of each."""
        now = timezone.now()
        form = KeyFilterForm(self.request.GET)
        part = Slice.of(form.apply(KEYS.rows(self.access)), self.request.GET)
        found = part.keys
        shown = self.access.rows_to_limit(ApiKey).filter(pk__in=[key.pk for key in found])
        owners = Access.when_active(key.owner for key in found if Scope.MANAGE in key.scopes)
        return super().get_context_data(**kwargs) | {
            "form": form,
            "rows": [self._row(key, now, owners.get(key.owner_id)) for key in found],
            "newer": part.has_newer and self.view(before="", after=str(found[0].pk)),
            "older": part.has_older and self.view(before=str(found[-1].pk), after=""),
            "limitable": set(shown.order_by().values_list("pk", flat=True)),
            "may_make": projects_for(self.access, self.user).exists(),
        }

    def _row(self, key: ApiKey, now: datetime, owner: Access | None) -> dict[str, Any]:
        state = key.state_at(now)
        is_over = state in (KeyState.REVOKED, KeyState.EXPIRED)
        may_manage = not is_over and self.access.may(Action.MANAGE, key)
        return {
            "key": key,
            "state": state,
            "slug": state.replace(" ", "-"),
            "is_overdue": not is_over and key.is_rotation_overdue(now),
            "may_stop": state is not KeyState.REVOKED and self.access.may(Action.STOP, key),
            "may_pause": not is_over and key.paused_at is None,
            "may_resume": may_manage
            and key.paused_at is not None
            and self.access.may(Action.RESUME, key),
            "may_rotate": may_manage
            and key.paused_at is None
            and key.replaced_by_id is None
            and self.access.may_act_as(key, owner),
        }


class MakeKey(KeysPage):
    """`/console/keys/new/`."""

    template_name = "console/key_new.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the form, if the user may create keys in any project."""
        projects = projects_for(self.access, self.user)
        kwargs.setdefault("form", NewKeyForm(projects))
        return super().get_context_data(**kwargs) | {"may_make": projects.exists()}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Create the key and show it."""
        form = NewKeyForm(projects_for(self.access, self.user), request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form))
        once, sent = form.cleaned_data["once"], request.session.get(_SENT, [])
        if once in sent:
            messages.warning(
                request, "This form has created a key already. If you have lost it, revoke it."
            )
            return HttpResponseRedirect(self.list_address())
        try:
            new = KEYS.create(self.access, {"owner": self.user, **form.columns})
        except ValidationError as error:
            form.add_errors(error)
            return self.render_to_response(self.get_context_data(form=form))
        request.session[_SENT] = [*sent, once][-20:]
        return self.show_once(new)


class RotateKey(KeysPage):
    """`/console/keys/<id>/rotate/`: asks for the grace period, and rotates."""

    template_name = "console/key_rotate.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the key, and the grace periods."""
        kwargs.setdefault("key", self.key())
        return super().get_context_data(**kwargs) | {"graces": _GRACES}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Rotate the key, and show the new one."""
        grace = request.POST.get("grace", "")
        try:
            new = self.act("rotate", grace_s=int(grace) if grace in dict(_GRACES) else 0)
        except Conflict as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(self.list_address())
        return self.show_once(new)


class RevokeKey(KeysPage):
    """`/console/keys/<id>/revoke/`: asks for a confirmation, and revokes."""

    template_name = "console/key_revoke.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the key."""
        kwargs.setdefault("key", self.key())
        return super().get_context_data(**kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Revoke the key."""
        key = self.act("revoke")
        messages.success(request, f"{key.name} is revoked.")
        return HttpResponseRedirect(self.list_address())


class SwitchKey(KeysPage):
    """`/console/keys/<id>/pause/` and `resume/`, without a confirmation: both can be undone."""

    does = "pause"  # or "resume"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return to the list: after sign-in, a button pressed without a session leads here."""
        text = f"Nothing was changed yet. To {self.does} {self.key().name}, press the button again."
        messages.info(request, text)
        return HttpResponseRedirect(self.list_address())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Pause or resume the key."""
        try:
            key = self.act(self.does)
        except Conflict as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(self.list_address())
        messages.success(request, f"{key.name} is {key.state_at(timezone.now())}.")
        return HttpResponseRedirect(self.list_address())


def projects_for(access: Access, user: User) -> Any:
    """Return the projects in which the user may create keys of their own."""
    rows = access.projects_seen().filter(is_active=True, organization__is_active=True)
    allowed = [
        project.pk
        for project in rows.select_related("organization")
        if access.may(Action.MANAGE, ApiKey(owner=user, project=project))
    ]
    return rows.filter(pk__in=allowed).select_related("organization")


def _id_in(query: QueryDict, name: str) -> int | None:
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
