"""Media rules in Django's admin."""

from typing import Any

from django.contrib import admin
from django.db.models import JSONField
from django.http import HttpRequest
from django.utils.html import format_html

from vinery_accounts.admin.base import ReadOnlyAdmin, ResourceAdmin, VisibleFilter
from vinery_accounts.resources.forms import form_field
from vinery_serving.allowlist.forms import PortsField, link_of
from vinery_serving.allowlist.models import (
    MediaDenial,
    MediaFolder,
    MediaLimit,
    MediaRule,
)
from vinery_serving.allowlist.resource import (
    MEDIA_DENIALS,
    MEDIA_FOLDERS,
    MEDIA_LIMITS,
    MEDIA_RULES,
)


class _ScopedAdmin(ResourceAdmin):
    """Rows of the platform, an organisation or a project."""

    list_filter = [("organization", VisibleFilter), ("project", VisibleFilter)]
    list_select_related = ["organization", "project__organization"]
    autocomplete_fields = ["organization", "project"]
    stored_fields = ["created_at", "updated_at"]

    @admin.display(description="applies to", ordering="organization__name")
    def applies_to(self, row: Any) -> str:
        return str(row.whose)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the writable columns, and the dates of a stored row."""
        writable = [name for name, field in self.api_fields.items() if not field.read_only]
        return writable if obj is None else [*writable, *self.stored_fields]


@admin.register(MediaRule)
class MediaRuleAdmin(_ScopedAdmin):
    resource = MEDIA_RULES
    list_display = ["host", "applies_to", "schemes", "ports", "max_bytes", "is_active", "note"]
    search_fields = ["host", "note"]
    ordering = ["organization__name", "project__name", "host"]

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Return the form field of the API's field for a list."""
        if not isinstance(db_field, JSONField):
            return super().formfield_for_dbfield(db_field, request, **kwargs)
        field = form_field(self.api_fields[db_field.name])
        is_ports = db_field.name == "ports"
        return PortsField(required=False, help_text=field.help_text) if is_ports else field


@admin.register(MediaFolder)
class MediaFolderAdmin(_ScopedAdmin):
    resource = MEDIA_FOLDERS
    list_display = ["folder", "applies_to", "max_bytes", "is_active", "note"]
    search_fields = ["folder", "note"]
    ordering = ["organization__name", "project__name", "folder"]


@admin.register(MediaLimit)
class MediaLimitAdmin(_ScopedAdmin):
    resource = MEDIA_LIMITS
    list_display = ["applies_to", "max_media"]
    ordering = ["organization__name", "project__name"]


@admin.register(MediaDenial)
class MediaDenialAdmin(ReadOnlyAdmin):
    resource = MEDIA_DENIALS
    list_display = ["last_at", "num", "what", "organization_name", "project_name", "why"]
    list_filter = ["reason", "level"]
    search_fields = ["host", "folder"]
    ordering = ["-last_at", "-id"]

    readonly_fields = ["why", "rule"]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns. Addresses, which may be private, are for administrators alone."""
        return [*self.list_display, *(["detail"] if request.user.is_superuser else [])]

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [] if request.user.is_superuser else ["detail"]

    @admin.display(description="why")
    def why(self, denial: MediaDenial) -> str:
        return denial.why(with_address=False)

    @admin.display(description="rule")
    def rule(self, denial: MediaDenial) -> str:
        """A link to the form of the rule that would allow it, which is a page of the console."""
        link = link_of(denial.denial, denial.organization_id, denial.project_id)
        if link is None:
            return "The rule that refused it is gone."
        return format_html('<a href="{}">{}</a>', link.address, f"{link.text}: {denial.what}")
