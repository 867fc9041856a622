"""The form of requests and responses: JSON bodies, and lists in pages."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from django.core.exceptions import PermissionDenied
from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import Http404
from rest_framework import exceptions, serializers
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.parsers import JSONParser
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import as_serializer_error
from rest_framework.views import set_rollback

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE, KeyRefused, NotAllowed
from vinery_accounts.models import Scope
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.fields import DEFAULT_PAGE, MAX_PAGE, not_found


class Json(JSONParser):
    def parse(self, stream: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the body. Raises ParseError, also for a body that is nested too deeply, and for
        a text that neither the database nor a response can hold."""
        try:
            body = super().parse(stream, *args, **kwargs)
            json.dumps(body, ensure_ascii=False).encode()
        except RecursionError:
            raise ParseError("JSON parse error - it is nested too deeply.") from None
        except UnicodeEncodeError:
            text = "JSON parse error - a string holds half of a surrogate pair."
            raise ParseError(text) from None
        return body


class Pages(CursorPagination):
    """Pages by cursor. Responses have the bare cursor of the next page, not a URL. Rows are not
    counted, and no row is skipped when others are added meanwhile."""

    page_size = DEFAULT_PAGE
    page_size_query_param = "limit"
    max_page_size = MAX_PAGE

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        ordering: tuple[str, ...] = view.resource.ordering
        # In one direction, so that an index has this order.
        return (*ordering, "-id" if ordering[-1].startswith("-") else "id")

    def encode_cursor(self, cursor: Cursor) -> str:
        self.base_url = "/"
        return unquote(super().encode_cursor(cursor).partition("cursor=")[2])

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Return the cursor of the query. Raises ValidationError for an invalid one."""
        try:
            return super().decode_cursor(request)
        except NotFound:
            text = "This is not a cursor of this list."
            raise serializers.ValidationError({"cursor": text}) from None

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


log = logging.getLogger(__name__)

# Other statuses have the code that is their name, such as `not_found`.
_CODES: Final = {400: "invalid_value", 401: "invalid_api_key", 503: "unavailable"}
_NO_FIELD: Final = ("non_field_errors", "__all__", "detail")


def handle(error: Exception, context: Mapping[str, Any]) -> Response | None:
    response = _response(error, context.get("view"))
    if response is not None:
        set_rollback()
    return response


def _response(error: Exception, view: Any) -> Response | None:
    match error:
        case KeyRefused():
            return _answer(401, error.message, headers={"WWW-Authenticate": "Bearer"})
        case NotAllowed():
            return _answer(403, error.message, code=error.code)
        case Http404():
            return _answer(404, _not_found(view))
        case PermissionDenied():
            return _answer(403, str(error) or "You may not do this.")
        case Conflict():
            return _answer(409, str(error))
        case exceptions.ValidationError():
            return _invalid(error.detail)
        case DjangoValidationError():
            return _invalid(_with_api_names(as_serializer_error(error), view))
        case _ if isinstance(error, DATABASE_UNAVAILABLE):
            log.warning("the database is unavailable: %s", str(error).partition("\n")[0])
            return _answer(503, "The database does not answer. Try again in a moment.")
        case exceptions.NotAuthenticated():
            text = "Sign in, or send 'Authorization: Bearer <key>' with a key that has the scope "
            return _answer(401, f"{text}{_scopes(view)}.", headers=_headers(error))
        case exceptions.ParseError():
            return _answer(400, str(error.detail), code="invalid_json")
        case exceptions.APIException():
            return _answer(error.status_code, str(error.detail), headers=_headers(error))
    return None


def _scopes(view: Any) -> str:
    read_scope = getattr(view, "read_scope", None)
    may_read = read_scope is not None and view.request.method in SAFE_METHODS
    first = f"`{read_scope}`, " if may_read else ""
    return f"{first}`{Scope.MANAGE}` or `{Scope.ADMIN}`"


def _not_found(view: Any) -> str:
    resource = getattr(view, "resource", None)
    if resource is None:
        return "Not found."
    kind = str(resource.model._meta.verbose_name)
    return not_found(kind, view.kwargs.get("pk", ""), view.access)


def _headers(error: exceptions.APIException) -> dict[str, str]:
    scheme = getattr(error, "auth_header", None)
    return {"WWW-Authenticate": scheme} if scheme else {}


def _invalid(detail: Any) -> Response:
    """Report the first error only: OpenAI's format has one parameter."""
    path, text = _first(detail, ())
    param = ".".join(path) or None
    message = str(text)
    code = {"required": "missing_required_parameter", "unknown": "unknown_parameter"}.get(
        getattr(text, "code", ""), "invalid_value"
    )
    return _answer(400, f"{param}: {message}" if param else message, param=param, code=code)


def _with_api_names(detail: Any, view: Any) -> Any:
    resource = getattr(view, "resource", None)
    if resource is None or not isinstance(detail, Mapping):
        return detail
    names = {field.source: name for name, field in resource.serializer().fields.items()}
    return {names.get(column, column): texts for column, texts in detail.items()}


def _first(detail: Any, path: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    match detail:
        case Mapping():
            name, inner = next((name, inner) for name, inner in detail.items() if inner)
            return _first(inner, path if name in _NO_FIELD else (*path, str(name)))
        case list():
            at, inner = next((at, inner) for at, inner in enumerate(detail) if inner)
            return _first(inner, (*path, str(at)) if isinstance(inner, Mapping) else path)
    return path, detail


def _answer(
    status_code: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    error = {
        "message": message,
        "type": "invalid_request_error" if status_code < 500 else "server_error",
        "param": param,
        "code": code or _CODES.get(status_code) or HTTPStatus(status_code).name.lower(),
    }
    return Response({"error": error}, status=status_code, headers=headers)
