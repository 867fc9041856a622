"""The form of requests and responses: JSON bodies, and lists in pages."""

import json
from typing import Any
from urllib.parse import unquote

from rest_framework import serializers
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response

from vinery_accounts.resources.fields import DEFAULT_PAGE, MAX_PAGE


class Json(JSONParser):
    """The parser of JSON bodies."""

    def parse(self, stream: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the body. Raises ParseError, also for a body that is nested too deeply, and for
        a text that neither the database nor a response can hold."""
        try:
            body = super().parse(stream, *args, **kwargs)
            json.dumps(body, ensure_ascii=False).encode()
        except RecursionError:
            raise ParseError("JSON parse error - it is nested too deeply.") from None
        except UnicodeEncodeError:
            raise ParseError(
                "JSON parse error - a string holds half of a surrogate pair."
            ) from None
        return body


class Pages(CursorPagination):
    """Pages by cursor. Responses have the bare cursor of the next page, not a URL. Rows are not
    counted, and none is skipped when rows are added meanwhile."""

    page_size = DEFAULT_PAGE
    page_size_query_param = "limit"
    max_page_size = MAX_PAGE

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        return (*view.resource.ordering, "id")

    def encode_cursor(self, cursor: Cursor) -> str:
        self.base_url = "/"
        return unquote(super().encode_cursor(cursor).partition("cursor=")[2])

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Return the cursor of the query. Raises ValidationError for an invalid one."""
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise serializers.ValidationError(
                {"cursor": "This is not a cursor of this list."}
            ) from None

    def get_paginated_response(self, data: Any) -> Response:
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
        cursor = {"type": "string", "nullable": True}
        properties = {
            "object": {"type": "string", "enum": ["list"]},
            "data": schema,
            "has_more": {"type": "boolean"},
            "next_cursor": cursor,
            "previous_cursor": cursor,
        }
        return {"type": "object", "required": list(properties), "properties": properties}
