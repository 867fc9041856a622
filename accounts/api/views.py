"""The views of the management API, built from `accounts.resources`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest
from drf_spectacular.utils import extend_schema
from rest_framework import viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.api.wire import Pages
from accounts.models import ApiKey
from accounts.resources.base import Issued, Resource, RowAction, require
from accounts.services.access import Access, Action


class ApiView(APIView):
    """A view that knows the access of its caller."""

    @cached_property
    def access(self) -> Access:
        """The access of the key, or of the user of the session."""
        key = self.request.auth
        return Access.of_key(key) if isinstance(key, ApiKey) else Access.of(self.request.user)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """REST framework ignores a body without a length, such as a chunked one: set it."""
        if not request.META.get("CONTENT_LENGTH"):
            request.META["CONTENT_LENGTH"] = str(len(request.body))
        return super().initialize_request(request, *args, **kwargs)

    def require_superuser(self) -> None:
        """Raise `PermissionDenied` unless the caller is an administrator of the platform."""
        if not self.access.is_superuser:
            raise PermissionDenied("Only an administrator of the whole platform may do this.")

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Forbid caching, and add a request id."""
        final = super().finalize_response(request, response, *args, **kwargs)
        final["Cache-Control"] = "no-store"
        final["x-request-id"] = f"req_{secrets.token_hex(12)}"
        return final


class ResourceViewSet(ApiView, viewsets.GenericViewSet):  # type: ignore[type-arg]
    """A list of a resource. Rows that the caller may not see are not found."""

    resource: ClassVar[Resource[Any]]
    pagination_class = Pages
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that the caller may see."""
        if self._is_schema:
            none: QuerySet[Any] = self.resource.model._default_manager.none()
            return none
        rows: QuerySet[Any] = self.resource.rows(self.access)
        return rows

    @property
    def _is_schema(self) -> bool:
        """Whether drf-spectacular writes the OpenAPI document: there is no caller."""
        return getattr(self, "swagger_fake_view", False)

    def get_serializer_class(self) -> Any:
        """Return the serializer of the resource."""
        return self.resource.serializer

    def get_serializer_context(self) -> dict[str, Any]:
        """Return what serializers of resources need."""
        return {
            **super().get_serializer_context(),
            "access": None if self._is_schema else self.access,
            "is_change": self.action == "partial_update",
        }

    def list(self, request: Request) -> Response:
        """List the rows that you may see, in pages."""
        context = self.get_serializer_context()
        filters = self.resource.filters(data=request.query_params, context=context)
        filters.is_valid(raise_exception=True)
        page = self.paginate_queryset(filters.apply(self.get_queryset())) or ()
        shown = self.resource.load(page)
        return self.get_paginated_response(self.get_serializer(shown, many=True).data)

    def show(self, result: Any, serializer: Any = None, status: int = 200) -> Response:
        """Return the response with a row, or with a new row and its secret."""
        row, context = result, self.get_serializer_context()
        if isinstance(result, Issued):
            row, context = result.row, {**context, "secret": result.secret}
        serializer = serializer or self.get_serializer_class()
        return Response(serializer(row, context=context).data, status=status)

    def read_body(self, serializer: Any = None, row: Model | None = None) -> dict[str, Any]:
        """Return the validated body of the request. Raises ValidationError."""
        serializer = serializer or self.get_serializer_class()
        body = serializer(
            row,
            data=self.request.data,
            partial=row is not None,
            context=self.get_serializer_context(),
        )
        body.is_valid(raise_exception=True)
        return dict(body.validated_data)


def viewset_of(resource: Resource[Any], **members: Any) -> type[ResourceViewSet]:
    """Return the views of a resource: those of its verbs, one for each of its actions, and the
    further `members` of the class."""
    verbs = {"create": _create, "change": _change, "remove": _remove}
    views = dict(make(resource) for verb, make in verbs.items() if verb in resource.verbs)
    views["retrieve"] = _retrieve(resource)
    actions = {each.name: _act(each) for each in resource.actions}
    name = f"{type(resource).__name__}ViewSet"
    members = {
        "resource": resource,
        "read_scope": resource.read_scope,
        "__doc__": resource.__doc__,
        **members,
    }
    return type(name, (ResourceViewSet,), {**views, **actions, **members})


def _retrieve(resource: Resource[Any]) -> Any:
    serializer = resource.detail_serializer or resource.serializer

    @extend_schema(responses=serializer)
    def retrieve(self: ResourceViewSet, request: Request, pk: str) -> Response:
        """Read one by its id."""
        found = resource.load([self.get_object()])
        if not found:
            raise Http404
        return self.show(found[0], serializer)

    return retrieve


def _create(resource: Resource[Any]) -> tuple[str, Any]:
    body = resource.create_serializer
    answer = resource.created_serializer

    def create(self: ResourceViewSet, request: Request) -> Response:
        result = resource.create(self.access, self.read_body(body))
        return self.show(result, answer, 201)

    create.__doc__ = resource.help.get("create", "Create a new one.")
    if body or answer:
        responses = {201: answer or resource.serializer}
        create = extend_schema(request=body or resource.serializer, responses=responses)(create)
    return "create", create


def _change(resource: Resource[Any]) -> tuple[str, Any]:
    def partial_update(self: ResourceViewSet, request: Request, pk: str) -> Response:
        row = self.get_object()
        require(self.access, Action.MANAGE, row)
        return self.show(resource.change(self.access, row, self.read_body(None, row)))

    default = "Change the fields that the request names."
    partial_update.__doc__ = resource.help.get("change", default)
    return "partial_update", partial_update


def _remove(resource: Resource[Any]) -> tuple[str, Any]:
    def destroy(self: ResourceViewSet, request: Request, pk: str) -> Response:
        resource.remove(self.access, self.get_object())
        return Response(status=204)

    destroy.__doc__ = resource.help.get("remove", "Remove it.")
    return "destroy", destroy


def _act(row_action: RowAction) -> Any:
    def act(self: ResourceViewSet, request: Request, pk: str) -> Response:
        values = self.read_body(row_action.serializer)
        result = self.resource.act(self.access, row_action, self.get_object(), **values)
        if isinstance(result, Mapping):
            return Response(result)
        return self.show(result, row_action.answer, row_action.status)

    act.__name__ = row_action.name
    act.__doc__ = row_action.help
    schema: dict[str, Any] = {"request": row_action.serializer}
    if row_action.answer:
        schema["responses"] = {row_action.status: row_action.answer}
    return extend_schema(**schema)(action(detail=True, methods=["post"])(act))
