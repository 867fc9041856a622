"""Keys: the list with their states, and their life from being made to being revoked."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from accounts.base.names import check_name
from accounts.base.networks import read_networks
from accounts.console.page import Page
from accounts.keys import lifecycle as keys
from accounts.keys import rotation
from accounts.keys.lifecycle import NewKey, matching
from accounts.models import ApiKey, KeyState, Project, Scope, User
from accounts.models.keys import in_state, usual_scopes
from accounts.services.access import Access, Action
from accounts.services.changes import check_endpoints

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
    """Which keys are listed. What cannot be used is told at its field, and does not count."""

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
        """Whether some keys are left out."""
        return self.is_bound and any(self._wanted().values())

    def apply(self, rows: QuerySet[ApiKey], now: datetime) -> QuerySet[ApiKey]:
        """The keys that are asked for."""
        wanted = self._wanted()
        if wanted.get("search"):
            rows = rows.filter(matching(wanted["search"]))
        if wanted.get("state"):
            rows = rows.filter(in_state(KeyState(wanted["state"]), now))
        return rows

    def _wanted(self) -> dict[str, str]:
        self.is_valid()
        return self.cleaned_data


@dataclass(frozen=True, slots=True)
class Slice:
    """Some keys of a list, the newest first, and whether there are others around them."""

    keys: list[ApiKey]
    has_newer: bool
    has_older: bool

    @classmethod
    def of(cls, rows: QuerySet[ApiKey], query: QueryDict) -> Slice:
        """Those before or after the key that the address names. Keys that are made or stopped
        meanwhile move nothing, and no page is empty while there are keys."""
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


class NewKeyForm(forms.Form):
    """What a new key may do."""

    name = forms.CharField(
        max_length=100,
        validators=[check_name],
        help_text="Where it will be used, such as laptop or nightly-report.",
    )
    project = forms.ModelChoiceField(Project.objects.none(), empty_label=None)
    expires_at = forms.DateTimeField(
        label="Expires",
        required=False,
        widget=forms.DateTimeInput({"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text="In UTC; empty: never.",
    )
    rotate_every_days = forms.IntegerField(
        label="To be rotated after",
        required=False,
        min_value=1,
        max_value=3650,
        help_text="Days; you are told before. Empty: never.",
    )
    rotation_grace_days = forms.IntegerField(
        label="Else it stops after",
        required=False,
        min_value=0,
        max_value=365,
        help_text="Days more. Empty: it is only told to be overdue.",
    )
    scopes = forms.MultipleChoiceField(
        label="May be used for", choices=Scope.choices, widget=forms.CheckboxSelectMultiple
    )
    models = forms.CharField(
        required=False, help_text="Names with commas between them; empty: all models."
    )
    endpoints = forms.CharField(
        required=False,
        help_text="Such as chat/completions, with commas between them; empty: all endpoints.",
    )
    networks = forms.CharField(
        required=False,
        help_text="Where from, such as 10.0.0.0/8, with commas between; empty: everywhere.",
    )
    # Whoever reloads the page that shows a key sends its form again.
    once = forms.CharField(widget=forms.HiddenInput, max_length=64)

    def __init__(self, projects: Any, data: Any = None) -> None:
        usual = {"scopes": usual_scopes(), "once": secrets.token_urlsafe(12)}
        super().__init__(data, initial=usual)
        field = self.fields["project"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = projects

    def clean_expires_at(self) -> datetime | None:
        """Raises ValidationError for a key that is over when it begins."""
        expires_at: datetime | None = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise ValidationError("Choose a time in the future, or leave it out.")
        return expires_at

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError for two ends."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            rotation.expiry_of_new(cleaned, timezone.now())
        return cleaned

    def clean_models(self) -> list[str]:
        """As a list."""
        return _words(self.cleaned_data["models"])

    def clean_endpoints(self) -> list[str]:
        """As a list. Raises ValidationError for one that is not served."""
        words = _words(self.cleaned_data["endpoints"])
        check_endpoints(words)
        return words

    def clean_networks(self) -> list[str]:
        """As a list. Raises ValidationError for what is no network."""
        words = _words(self.cleaned_data["networks"])
        try:
            read_networks(words)
        except ValueError as error:
            raise ValidationError(f"{error}. Networks look like 10.0.0.0/8.") from None
        return words


class KeysPage(Page):
    """What the pages about keys share."""

    name = "keys"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The way back to the list, too, and what a form's address carries for it."""
        view = self.view()
        query = f"?{view}" if view else ""
        return super().get_context_data(**kwargs) | {"list": self.list_address(), "view": query}

    def view(self, **changes: str) -> str:
        """What of the list is looked at, as a query string."""
        query = QueryDict(mutable=True)
        kept = {name: self.request.GET.get(name, "") for name in _VIEW} | changes
        query.update({name: value for name, value in kept.items() if value})
        return query.urlencode()

    def list_address(self) -> str:
        """The list as it was looked at before."""
        view = self.view()
        return reverse("console:keys") + (f"?{view}" if view else "")

    def key(self) -> ApiKey:
        """The one of the address. Raises `Http404` for one that may not be seen."""
        rows = self.access.keys_seen().select_related("owner", "project__organization")
        return get_object_or_404(rows, pk=self.kwargs["key_id"])

    def require(self, action: Action, key: ApiKey) -> None:
        """Raises `PermissionDenied` for what the role does not allow."""
        if not self.access.may(action, key):
            raise PermissionDenied

    def require_to_hold(self, key: ApiKey) -> None:
        """The same for whoever is about to learn the key's secret."""
        self.require(Action.MANAGE, key)
        if not self.access.may_act_as(key):
            raise PermissionDenied

    def show_once(self, new: NewKey) -> HttpResponse:
        """The page with the secret, which is nowhere else."""
        self.template_name = "console/key_made.html"
        base_url = settings.VINERY_PUBLIC_URL or self.request.build_absolute_uri("/").rstrip("/")
        context = {
            "key": new.key,
            "secret": new.secret,
            "base_url": f"{base_url}/v1",
            "model": next(iter(new.key.allowed_models), "") or self._model(),
        }
        return self.render_to_response(self.get_context_data(**context))

    def _model(self) -> str:
        """One that they have used, so that the example works as it is."""
        used = self.access.keys_seen().exclude(last_used_model="").order_by("-last_used_at")
        return used.values_list("last_used_model", flat=True).first() or "YOUR-MODEL"


class Keys(KeysPage):
    """`/console/keys/`."""

    template_name = "console/keys.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Those that may be seen, the newest first, and what may be done with each."""
        now = timezone.now()
        rows = self.access.keys_seen().select_related("owner", "project__organization")
        form = KeyFilterForm(self.request.GET)
        part = Slice.of(form.apply(rows, now), self.request.GET)
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
        """The form, for whoever has a project to make keys in."""
        projects = projects_for(self.access, self.user)
        kwargs.setdefault("form", NewKeyForm(projects))
        return super().get_context_data(**kwargs) | {"may_make": projects.exists()}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Make the key and show it."""
        form = NewKeyForm(projects_for(self.access, self.user), request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form))
        values = dict(form.cleaned_data)
        for name in ("models", "endpoints", "networks"):
            values[f"allowed_{name}"] = values.pop(name)
        if not self._is_first(values.pop("once")):
            messages.warning(
                request, "This form has made a key already. If you have lost it, revoke it."
            )
            return HttpResponseRedirect(self.list_address())
        self.require_to_hold(
            ApiKey(owner=self.user, project=values["project"], scopes=values["scopes"])
        )
        return self.show_once(keys.create_key(owner=self.user, **values))

    def _is_first(self, once: str) -> bool:
        sent = self.request.session.get(_SENT, [])
        self.request.session[_SENT] = [*sent, once][-20:]
        return once not in sent


class RotateKey(KeysPage):
    """`/console/keys/<id>/rotate/`: asks how long the old one works on, and does it."""

    template_name = "console/key_rotate.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The key, and the choice."""
        kwargs.setdefault("key", self.key())
        return super().get_context_data(**kwargs) | {"graces": _GRACES}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Make the key that replaces it, and show it."""
        key = self.key()
        self.require_to_hold(key)
        grace = request.POST.get("grace", "")
        grace_s = int(grace) if grace in dict(_GRACES) else 0
        try:
            new = keys.rotate_key(key, grace=timedelta(seconds=grace_s))
        except ValueError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(self.list_address())
        return self.show_once(new)


class RevokeKey(KeysPage):
    """`/console/keys/<id>/revoke/`: asks, and does it."""

    template_name = "console/key_revoke.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The key."""
        kwargs.setdefault("key", self.key())
        return super().get_context_data(**kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Stop it for good."""
        key = self.key()
        self.require(Action.STOP, key)
        keys.revoke_key(key)
        messages.success(request, f"{key.name} is revoked.")
        return HttpResponseRedirect(self.list_address())


class SwitchKey(KeysPage):
    """`/console/keys/<id>/pause/` and `resume/`: both can be undone, so nothing is asked."""

    does = "pause"  # or "resume"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Back to the list: sign-in leads here whoever pressed the button without a session."""
        told = f"Nothing was changed yet. To {self.does} {self.key().name}, press the button again."
        messages.info(request, told)
        return HttpResponseRedirect(self.list_address())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Do it."""
        key = self.key()
        if self.does == "pause":
            self.require(Action.STOP, key)
            keys.pause_key(key)
        else:
            self.require(Action.RESUME, key)
            keys.resume_key(key)
        messages.success(request, f"{key.name} is {key.state_at(timezone.now())}.")
        return HttpResponseRedirect(self.list_address())


def projects_for(access: Access, user: User) -> Any:
    """Where somebody may make keys of their own."""
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


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
