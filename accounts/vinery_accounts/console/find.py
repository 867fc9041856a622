"""The command palette, the switch of what all pages show, and the reader's time zone. Without
scripts each is a page of its own."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice
from operator import or_
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from zoneinfo import available_timezones

from django import forms
from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import NoReverseMatch, Resolver404, resolve, reverse

from vinery_accounts.access.served import visible_models
from vinery_accounts.console.menu import SCOPE, menu_of, scope_named
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.models import ApiKey, Membership, Organization, Project, User

_MAX_FOUND: Final = 20
_ROWS: Final = (
    # The entry of the menu, the page of a row, if all who see the row may open it, and where the
    # words are looked for.
    ("keys", "key", ApiKey, ("name", "hint")),
    ("members", "", Membership, ("user__username", "user__email")),
    ("projects", "projects-row", Project, ("name", "organization__name")),
    ("organizations", "organizations-row", Organization, ("name",)),
)


@dataclass(frozen=True, slots=True)
class Found:
    kind: str
    title: str
    address: str = ""
    scope: str = ""  # what the switch takes, in place of an address


@at("find/", "find")
class Find(Page):
    """`q` has the words. `scopes=1` finds what all pages can be narrowed to."""

    def get_template_names(self) -> list[str]:
        return ["console/found.html" if "x-live" in self.request.headers else "console/find.html"]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        words = self.request.GET.get("q", "").replace("\0", "").strip()[:200]
        is_switch = "scopes" in self.request.GET
        found = self._scopes(words) if is_switch else self._all(words)
        context = {"words": words, "is_switch": is_switch, "found": [*islice(found, _MAX_FOUND)]}
        return super().get_context_data(**kwargs) | context

    def _all(self, words: str) -> Iterator[Found]:
        if words.startswith("req_"):
            with suppress(NoReverseMatch):
                yield Found("Request", words, reverse("console:request", args=[words]))
        for group, entries in menu_of(self.access).items():
            for entry in entries:
                if words.lower() in entry.title.lower():
                    yield Found(group, entry.title, reverse(f"console:{entry.name}"))
        if words:
            yield from self._models(words)
            yield from self._rows(words)

    def _models(self, words: str) -> Iterator[Found]:
        for model in visible_models(self.access):
            if words.lower() in model.name.lower():
                address = f"{reverse('console:playground')}?{urlencode({'model': model.name})}"
                if self.access.is_superuser and model.row_id is not None:
                    address = reverse("console:model", args=[model.row_id])
                yield Found("Model", model.name, address)

    def _rows(self, words: str) -> Iterator[Found]:
        entries = chain.from_iterable(menu_of(self.access).values())
        titles = {each.name: each.title for each in entries}
        for entry, page, model, columns in _ROWS:
            if entry in titles:
                rows: Any = self.access.rows(model)
                for row in rows.filter(_has(words, columns)).order_by("pk")[:5]:
                    address = f"{reverse(f'console:{entry}')}?{urlencode({'search': words})}"
                    if page:
                        address = reverse(f"console:{page}", args=[row.pk])
                    yield Found(titles[entry], str(row), address)

    def _scopes(self, words: str) -> Iterator[Found]:
        """Find among all that the person may see, whatever is looked at now."""
        access = replace(self.access, scope=None)
        if self.access.scope is not None:
            yield Found("All that you may see", "All", scope="all")
        for _, _, model, columns in _ROWS[-2:][::-1]:
            rows: Any = access.rows(model)
            for row in rows.filter(_has(words, columns)).order_by("pk")[:_MAX_FOUND]:
                title = "Project" if model is Project else "Organisation"
                yield Found(title, str(row), scope=f"{model._meta.model_name}:{row.pk}")


def _has(words: str, columns: Iterable[str]) -> Q:
    return reduce(or_, (Q(**{f"{column}__icontains": words}) for column in columns))


@at("scope/", "scope")
class Narrow(Page):
    """Narrows all pages to one organisation or project, until another one is chosen."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect(f"{reverse('console:find')}?scopes=1")

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        chosen = request.POST.get("scope", "")
        if scope_named(replace(self.access, scope=None), chosen) is None:
            request.session.pop(SCOPE, None)
        else:
            request.session[SCOPE] = chosen
        # The page of the menu that the reader comes from: a row may be outside of the scope.
        with suppress(Resolver404, NoReverseMatch):
            view: Any = resolve(urlsplit(request.headers.get("referer", "")).path).func
            return redirect(f"console:{view.view_class.name}")
        return redirect("console:overview")


class ZoneForm(forms.Form):
    time_zone = forms.ChoiceField(
        choices=[("", "That of the browser"), *((k, k) for k in sorted(available_timezones()))],
        required=False,
        help_text="Pages of the console show times in this zone. The API and exports have UTC.",
    )


@at("time-zone/", "time-zone")
class TimeZone(FormPage):
    heading = "Time zone"

    def form_of(self, data: QueryDict | None) -> ZoneForm:
        return ZoneForm(data, initial={"time_zone": self.user.time_zone})

    def save(self, form: Any) -> HttpResponse:
        User.objects.filter(pk=self.user.pk).update(**form.cleaned_data)
        messages.success(self.request, "The time zone is saved.")
        return redirect("account_overview")
