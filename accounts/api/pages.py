"""Lists in pages, each of which names the next: nothing is counted, nothing is skipped when
rows are added meanwhile."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.wire import MAX_PAGE, USUAL_PAGE


class Pages(CursorPagination):
    """REST framework's, whose cursors are handed out bare, without a URL around them."""

    page_size = USUAL_PAGE
    page_size_query_param = "limit"
    max_page_size = MAX_PAGE

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        """What the view says, and at last the id, so that no two rows are equal."""
        return (*view.ordering, "id")

    def encode_cursor(self, cursor: Cursor) -> str:
        """A cursor as clients send it back."""
        self.base_url = "/"
        return unquote(super().encode_cursor(cursor).partition("cursor=")[2])

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Raises ValidationError for what is no cursor."""
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise serializers.ValidationError(
                {"cursor": "This is not a cursor of this list."}
            ) from None

    def get_paginated_response(self, data: Any) -> Response:
        """`{"object": "list", "data": [...], ...}`."""
        return Response(
            {
                "object": "list",
                "data": data,
                "has_more": self.has_next,
                "next_cursor": self.get_next_link(),
                "previous_cursor": self.get_previous_link(),
            }
        )

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The same for the OpenAPI document."""
        cursor = {"type": "string", "nullable": True}
        return {
            "type": "object",
            "required": ["object", "data", "has_more", "next_cursor", "previous_cursor"],
            "properties": {
                "object": {"type": "string", "enum": ["list"]},
                "data": schema,
                "has_more": {"type": "boolean"},
                "next_cursor": cursor,
                "previous_cursor": cursor,
            },
        }
