"""What all views of the management API have in common."""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from rest_framework import viewsets
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.api.pages import Pages
from accounts.api.wire import Filters
from accounts.models import ApiKey
from accounts.services import changes
from accounts.services.access import Access, Action


class Guarded(APIView):
    """Who calls, and what they may."""

    @cached_property
    def access(self) -> Access:
        """Of the caller."""
        key = self.request.auth
        return Access.of_key(key) if isinstance(key, ApiKey) else Access.of(self.request.user)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """As REST framework's, which takes a body in chunks for none, as its length is not told."""
        if not request.META.get("CONTENT_LENGTH"):
            request.META["CONTENT_LENGTH"] = str(len(request.body))
        return super().initialize_request(request, *args, **kwargs)

    def require(self, action: Action, row: Model) -> None:
        """Raises `PermissionDenied` for what the caller's role does not allow."""
        if self.access.may(action, row):
            return
        if self.access.is_of_key and Access.of(self.request.user).may(action, row):
            raise PermissionDenied(
                "You may do this, but not with a key: it reaches no further than its project. "
                "Sign in and use the session."
            )
        raise PermissionDenied("Your role does not allow this. Ask an owner or administrator.")

    def require_superuser(self) -> None:
        """Raises `PermissionDenied` for everybody else."""
        if not self.access.is_superuser:
            raise PermissionDenied("Only an administrator of the whole platform may do this.")

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """What is answered is for the caller alone, and has an id to ask about."""
        final = super().finalize_response(request, response, *args, **kwargs)
        final["Cache-Control"] = "no-store"
        final["x-request-id"] = f"req_{secrets.token_hex(12)}"
        return final


class Rows(Guarded, viewsets.GenericViewSet):  # type: ignore[type-arg]
    """A table: listed and read. What the caller may not see is not found."""

    model: ClassVar[type[Model]]
    related: ClassVar[tuple[str, ...]] = ()
    filters: ClassVar[type[Filters]] = Filters
    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    words: ClassVar[tuple[str, str]]  # one, and many
    pagination_class = Pages
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Any]:
        """What the caller may see."""
        if getattr(self, "swagger_fake_view", False):  # the OpenAPI document is for nobody
            return self.model._default_manager.none()
        rows = self.access.rows(self.model)
        return rows.select_related(*self.related) if self.related else rows

    def list(self, request: Request) -> Response:
        """Those that you may see, in pages."""
        context = self.get_serializer_context()
        filters = self.filters(data=request.query_params, context=context)
        filters.is_valid(raise_exception=True)
        page = self.paginate_queryset(filters.apply(self.get_queryset()))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        """One of them, by its id."""
        return Response(self.get_serializer(self.get_object()).data)

    def told(self, row: Model, status: int = 200) -> Response:
        """The answer that shows a row."""
        return Response(self.get_serializer(row).data, status=status)

    def read_body(self, row: Model | None = None) -> dict[str, Any]:
        """What the request says. Raises ValidationError."""
        body = self.get_serializer(row, data=self.request.data, partial=row is not None)
        body.is_valid(raise_exception=True)
        return dict(body.validated_data)


class Makes(Rows):
    """And made."""

    def create(self, request: Request) -> Response:
        """Make a new one."""
        row = self.model(**self.read_body())
        self.require(Action.MANAGE, row)
        return self.told(changes.add(row), 201)


class Changes(Rows):
    """And changed."""

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change what the request names; the rest stays."""
        row = self.get_object()
        self.require(Action.MANAGE, row)
        return self.told(changes.change(row, **self.read_body(row)))


class Removes(Rows):
    """And removed."""

    removal: ClassVar[Action] = Action.MANAGE

    def destroy(self, request: Request, pk: str) -> Response:
        """Remove it."""
        row = self.get_object()
        self.require(self.removal, row)
        changes.remove(row)
        return Response(status=204)
