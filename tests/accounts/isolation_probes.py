"""Requests about the rows of another organisation, from the URL configuration.

A new endpoint, filter or field is probed without a line here: routes come from the resolver,
methods and bodies from the views and their serializers.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from asgiref.sync import async_to_sync
from django.contrib import admin
from django.test import Client
from django.urls import URLResolver, get_resolver
from django.urls.converters import UUIDConverter
from django.utils.regex_helper import normalize
from rest_framework import serializers

from vinery_accounts.models import OWNERS
from vinery_accounts.resources.fields import VisibleRelatedField

# Parameters of URLs that are not ids.
_FIXED: Final = {"tree": "v1", "app_label": "accounts", "url": "nothing/"}


@dataclass(frozen=True)
class Probe:
    """A request. A body of the management API is sent as JSON, others as a form."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Route:
    """One pattern of the URL configuration."""

    template: str
    parameters: tuple[str, ...]
    view: Any
    has_uuid: bool = False

    @property
    def has_id(self) -> bool:
        return bool(set(self.parameters) - _FIXED.keys())

    @property
    def actions(self) -> Mapping[str, str]:
        """The method of the view for each HTTP method; unknown for a page."""
        return getattr(self.view, "actions", None) or {"get": "get", "post": "post"}

    def path(self, row_id: int | str = 0) -> str:
        id_ = UUID(int=row_id) if self.has_uuid and isinstance(row_id, int) else row_id
        values = dict.fromkeys(self.parameters, id_) | _FIXED
        return f"/{self.template % values}"


def routes(prefixes: Iterable[str]) -> list[Route]:
    """Return all routes whose paths begin with one of these."""
    found = _walk(get_resolver().url_patterns, "")
    return [route for route in found if route.template.startswith(tuple(prefixes))]


def _walk(patterns: Iterable[Any], prefix: str) -> Iterator[Route]:
    for each in patterns:
        regex = prefix + each.pattern.regex.pattern.removeprefix("^")
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, regex.removesuffix(r"\Z"))
        else:
            template, parameters = normalize(regex)[0]
            kinds = getattr(each.pattern, "converters", {}).values()
            has_uuid = any(isinstance(kind, UUIDConverter) for kind in kinds)
            yield Route(template, tuple(parameters), each.callback, has_uuid)


# -- Reading


def reads(found: Iterable[Route], first_id: int, num_ids: int = 1) -> Iterator[Probe]:
    """Yield a GET of each page and of its first rows."""
    for route in found:
        if "get" in route.actions:
            for number in range(num_ids if route.has_id else 1):
                yield Probe("GET", route.path(first_id + number))


def searches(
    found: Iterable[Route], foreign_id: int, name: str, max_choices: int = 0
) -> Iterator[Probe]:
    """Yield lists and reports with a foreign id or name in each filter for ids or names, and with
    up to `max_choices` choices of other filters."""
    for route in found:
        for query in _queries(route):
            for field_name, field in query().fields.items():
                for value in _values(field, foreign_id, name, max_choices):
                    yield Probe("GET", f"{route.path()}?{urlencode({field_name: value})}")
        if route.template.startswith("console/") and not route.has_id:
            yield Probe("GET", f"{route.path()}?{urlencode(_console_filters(foreign_id, name))}")


def _queries(route: Route) -> list[Any]:
    view = getattr(route.view, "cls", None)
    lists = [view.resource.filters] if "list" in route.actions.values() else []
    return [*lists, *(each for action in route.actions.values() for each in _of(view, action))]


def _of(view: Any, action: str) -> Iterable[Any]:
    return getattr(view, "query", {}).get(action, ())


def _values(field: Any, foreign_id: int, name: str, max_choices: int) -> Iterable[object]:
    match getattr(field, "child", field):
        case serializers.ChoiceField(choices=choices):
            return list(choices)[:max_choices]
        case serializers.IntegerField():
            return (foreign_id,)
        case serializers.BooleanField():
            return ("true",)[:max_choices]
        case serializers.DateTimeField():
            return ("2020-01-01T00:00Z",)[:max_choices]
        case _:
            return (name, f"project:{foreign_id}")[: 1 + bool(max_choices)]


def _console_filters(foreign_id: int, name: str) -> dict[str, object]:
    """Return filters that a foreign request or key matches, all at once: rendering a page is
    expensive."""
    names = {"model": name, "search": name, "of": f"key:{foreign_id}"}
    return {**dict.fromkeys(OWNERS, foreign_id), **names, "before": foreign_id + 1}


def searches_of_admin(
    foreign_id: int | str, name: str, lookups: Iterable[str] = ("__id__exact",)
) -> Iterator[Probe]:
    """Yield the lists of the admin with a search, and with a filter by each related row."""
    for model, page in admin.site._registry.items():
        path = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        if page.search_fields:
            yield Probe("GET", f"{path}?{urlencode({'q': name})}")
        for each in page.list_filter:
            field = each[0] if isinstance(each, tuple) else each
            if isinstance(field, str) and model._meta.get_field(field).is_relation:
                for lookup in lookups:
                    yield Probe("GET", f"{path}?{urlencode({field + lookup: foreign_id})}")


# -- Writing


def changes_of(found: Iterable[Route], row_id: int) -> Iterator[Probe]:
    """Yield every change, action and form about the row, and every new row."""
    for route in found:
        for method in route.actions:
            if method not in ("get", "head"):
                yield Probe(method.upper(), route.path(row_id), {})


def references(found: Iterable[Route], own_id: int, foreign_id: int, name: str) -> Iterator[Probe]:
    """Yield new rows, and changes of own rows, that refer to a foreign row or have its name."""
    for route in found:
        view = getattr(route.view, "cls", None)
        for method, action in route.actions.items():
            if action not in ("create", "partial_update"):
                continue
            path = route.path(own_id)
            fields = view.resource.body_of(action)().fields
            writable = {key: field for key, field in fields.items() if not field.read_only}
            is_new = action == "create"
            least = _least(writable, own_id) if is_new else {}
            yield Probe(method.upper(), path, least)
            for change in _changes(writable, foreign_id, name):
                yield Probe(method.upper(), path, {**least, **change})


def _changes(fields: Mapping[str, Any], foreign_id: int, name: str) -> Iterator[dict[str, Any]]:
    ids = {key: foreign_id for key in fields if key.endswith("_id")}
    for key, field in fields.items():
        match field:
            case VisibleRelatedField():
                yield {key: foreign_id}
            case serializers.ChoiceField(choices=choices) if ids:
                yield from ({key: choice, **ids} for choice in choices)
            case serializers.EmailField():
                yield {key: f"{name}@{name}.example"}
            case serializers.CharField():
                yield {key: name}


def _least(fields: Mapping[str, Any], own_id: int) -> dict[str, Any]:
    """Return a body for a new row, in an own organisation."""
    related = [key for key, field in fields.items() if isinstance(field, VisibleRelatedField)]
    least = {key: _sample(field, own_id) for key, field in fields.items() if field.required}
    if related and not least.keys() & set(related):
        least[related[0]] = own_id
    return least


def _sample(field: Any, own_id: int) -> Any:
    match field:
        case VisibleRelatedField():
            return own_id
        case serializers.ChoiceField(choices=choices):
            return next(iter(choices))
        case serializers.BooleanField():
            return False
        case serializers.IntegerField() | serializers.FloatField():
            return 1
        case serializers.ListField() | serializers.JSONField():
            return []
        case serializers.DateTimeField():
            return "2026-03-01T12:00Z"
        case serializers.CharField():
            return "https://hooks.new.example/" if "url" in field.field_name else "new"
        case _:
            raise TypeError(f"no sample for a {type(field).__name__}")


_MEDIA_SIZES: Final = {"max_bytes": 9, "max_pixels": 9}
_MEDIA_FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "rules": {"host": "new", "schemes": "https", "max_redirects": 1, "timeout_s": 1} | _MEDIA_SIZES,
    "folders": {"folder": "/new", **_MEDIA_SIZES},
    "limits": {"max_media": 1},
}


def forms(own_id: int, foreign_id: int, name: str) -> Iterator[Probe]:
    """Yield the console's forms that name a row, with a foreign row, or a user, with a foreign
    name."""
    key = {"name": "new", "scopes": "inference"}
    yield Probe("POST", "/console/keys/new/", {**key, "project": foreign_id})
    limit = {"metric": "requests", "window": "minute", "amount": 9, "time_zone": "UTC"}
    for kind in OWNERS:
        of = f"{kind}:{foreign_id}"
        yield Probe("POST", "/console/limits/new/", {**limit, "week_start": "monday", "of": of})
    role = {"username": "new", "role": "member"}
    for kind in ("organization", "project"):
        where = f"{kind}:{foreign_id}"
        yield Probe("POST", "/console/members/new/", {**role, "where": where})
        yield Probe("POST", "/console/members/invite/", {**role, "where": where})
        for kind_of_rule, least in _MEDIA_FORMS.items():
            address = f"/console/media/{kind_of_rule}/new/"
            yield Probe("POST", address, {**least, "of": where})
    yield Probe("POST", "/console/keys/new/", {**key, "project": own_id, "owner": name})
    named = {"name": "new", "organization": foreign_id}
    yield Probe("POST", "/console/projects/new/", named)
    yield Probe("POST", "/console/webhooks/new/", {**named, "url": "https://hooks.new.example/"})


# -- Answers


def answer(client: Client, probe: Probe, *, keeps_new: bool = False) -> tuple[int, str]:
    """Return the status, and the text without parts that differ each time. The text of a new row is
    left out, unless `keeps_new`."""
    if probe.path.startswith("/api/") and probe.body is not None:
        body, media = json.dumps(probe.body), "application/json"
    else:
        body, media = urlencode(probe.body or {}, doseq=True), "application/x-www-form-urlencoded"
    response = client.generic(probe.method, probe.path, body, media)
    if probe.method != "GET" and response.status_code < 300 and not keeps_new:
        return response.status_code, ""
    return response.status_code, f"{response.get('location', '')}\n{_text(response)}"


def _text(response: Any) -> str:
    content = async_to_sync(_whole)(response) if response.streaming else response.content
    text = content.decode("utf-8", "replace")
    once = r'name="(csrfmiddlewaretoken|once)" value="[^"]*"'
    return re.sub(once, "", text)


async def _whole(response: Any) -> bytes:
    return b"".join([part async for part in response.streaming_content])
