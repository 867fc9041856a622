"""The audit log of the user's organisations."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django import forms

from vinery_accounts.console.rows import ResourcePage, page_of
from vinery_accounts.models import AuditEntry
from vinery_accounts.resources.audit import AUDIT, SEARCH_HELP
from vinery_accounts.usage.periods import check_moment


def _day(label: str) -> forms.DateField:
    widget = forms.DateInput({"type": "date"})
    return forms.DateField(label=label, required=False, validators=[check_moment], widget=widget)


def _text(**attributes: str) -> forms.CharField:
    widget = forms.TextInput({"size": "14", **attributes})
    return forms.CharField(required=False, max_length=255, widget=widget)


class AuditFilterForm(forms.Form):
    """Filters of the list. An invalid value is shown at its field, and ignored."""

    actor = _text(placeholder="alice")
    action = _text(placeholder="key.revoke")
    search = _text(type="search", title=SEARCH_HELP)
    since = _day("From")
    until = _day("To")

    def wanted(self) -> Iterator[tuple[str, Any]]:
        """Yield the lookup and the value of each valid filter that is set."""
        self.is_valid()
        for name, value in self.cleaned_data.items():
            if not value:
                continue
            match name:
                case "since":
                    yield "created_at__gte", _midnight(value)
                case "until":
                    yield "created_at__lt", _midnight(value + timedelta(days=1))
                case _:
                    yield name, value


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class AuditLog(ResourcePage):
    """`/console/audit/`, the newest entry first."""

    name = "audit"
    template_name = "console/audit.html"
    resource = AUDIT

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = AuditFilterForm(self.request.GET)
        wanted = list(form.wanted())
        rows = AUDIT.rows(self.access)
        for lookup, value in wanted:
            rows = AUDIT.filters().narrow(rows, lookup, value)
        page = page_of(rows.order_by("-number"), self.request)
        shown = [{"entry": entry, "changes": changes_of(entry)} for entry in page["rows"]]
        context = {**page, "rows": shown, "form": form, "is_filtered": bool(wanted)}
        return super().get_context_data(**kwargs) | context


def changes_of(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """Return each column that the entry reports, with its values before and after."""
    before, after = entry.before or {}, entry.after or {}
    names = sorted({*before, *after})
    return [(name, _value(before, name), _value(after, name)) for name in names]


def _value(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
