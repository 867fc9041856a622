"""The views and URLs of the management API, built from `resources`, and the views of usage."""

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from asgiref.sync import sync_to_async
from django.db.models import Model
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView

from vinery_accounts.access import audit as audit_log
from vinery_accounts.access.access import Access, Action
from vinery_accounts.api.wire import Pages
from vinery_accounts.models import ApiKey, Scope, User
from vinery_accounts.resources import records, usage, users
from vinery_accounts.resources.base import (
    Issued,
    Resource,
    RowAction,
    registered,
    require,
    require_administrator,
)
from vinery_accounts.resources.fields import StrictSerializer
from vinery_accounts.resources.usage import ExportQuery, UsageQuery, UsageSerializer
from vinery_accounts.usage.export import export

QueryT = TypeVar("QueryT", bound=StrictSerializer)


class ApiView(APIView):
    @cached_property
    def access(self) -> Access:
        """The access of the key, or of the user of the session."""
        if getattr(self, "swagger_fake_view", False):
            return Access(None)  # drf-spectacular writes the OpenAPI document: there is no caller
        key = self.request.auth
        return Access.of_key(key) if isinstance(key, ApiKey) else Access.of(self.request.user)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Set the length of a chunked body: REST framework ignores a body without a length."""
        if not request.META.get("CONTENT_LENGTH"):
            request.META["CONTENT_LENGTH"] = str(len(request.body))
        return super().initialize_request(request, *args, **kwargs)

    def read_query(self, serializer: type[QueryT]) -> QueryT:
        """Return the validated query string. Raises ValidationError."""
        query = serializer(data=self.request.query_params, context={"access": self.access})
        query.is_valid(raise_exception=True)
        return query

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

    def get_queryset(self) -> Any:
        return self.resource.rows(self.access)

    def get_serializer_class(self) -> Any:
        return self.resource.answer_of(self.action)

    def get_serializer_context(self) -> dict[str, Any]:
        return {
            **super().get_serializer_context(),
            "access": self.access,
            "is_change": self.action == "partial_update",
        }

    def list(self, request: Request) -> Response:
        """List the rows that you may see, in pages."""
        filters = self.read_query(self.resource.filters)
        page = self.paginate_queryset(filters.apply(self.get_queryset())) or ()
        shown = self.resource.load(page)
        return self.get_paginated_response(self.get_serializer(shown, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        """Read one by its id."""
        found = self.resource.load([self.get_object()])
        if not found:
            raise Http404
        return self.show(found[0])

    def show(self, result: Any, status: int = 200) -> Response:
        """Return the response with a row, or with a new row and its secret."""
        row, context = result, self.get_serializer_context()
        if isinstance(result, Issued):
            row, context = result.row, {**context, "secret": result.secret}
        return Response(self.get_serializer_class()(row, context=context).data, status=status)

    def read_body(self, row: Model | None = None) -> dict[str, Any]:
        """Return the validated body of the request. Raises ValidationError."""
        body = self.resource.body_of(self.action)(
            row,
            data=self.request.data,
            partial=row is not None,
            context=self.get_serializer_context(),
        )
        body.is_valid(raise_exception=True)
        return dict(body.validated_data)


def create(self: ResourceViewSet, request: Request) -> Response:
    """Create a new one."""
    return self.show(self.resource.create(self.access, self.read_body()), 201)


def partial_update(self: ResourceViewSet, request: Request, pk: str) -> Response:
    """Change the fields that the request names."""
    row = self.get_object()
    require(self.access, Action.MANAGE, row)
    return self.show(self.resource.change(self.access, row, self.read_body(row)))


def destroy(self: ResourceViewSet, request: Request, pk: str) -> Response:
    """Remove it."""
    self.resource.remove(self.access, self.get_object())
    return Response(status=204)


_METHODS: Final = {"create": create, "change": partial_update, "remove": destroy}


def viewset_of(resource: Resource[Any], **members: Any) -> type[ResourceViewSet]:
    """Return the class with a view for each verb and each action, and these further members."""
    verbs = {each.__name__: each for verb, each in _METHODS.items() if verb in resource.verbs}
    actions = {each.name: _act(each) for each in resource.actions}
    name = f"{type(resource).__name__}ViewSet"
    about = {
        "resource": resource,
        "read_scope": resource.read_scope,
        "lookup_field": resource.lookup[0],
        "lookup_url_kwarg": "pk",
        "lookup_value_regex": resource.lookup[1],
        "__doc__": resource.__doc__,
    }
    return type(name, (ResourceViewSet,), {**about, **verbs, **actions, **members})


def _act(row_action: RowAction) -> Any:
    is_of_list = row_action.is_of_list

    def act(self: ResourceViewSet, request: Request, pk: str = "") -> Response:
        values = self.read_body()
        row = None if is_of_list else self.get_object()
        result = self.resource.act(self.access, row_action, row, **values)
        if not is_of_list and (result is None or isinstance(result, Mapping)):
            return Response(result, status=row_action.status)
        return self.show(result, row_action.status)

    act.__name__, act.__doc__ = row_action.name, row_action.help
    of_list: dict[str, Any] = {"pagination_class": None, "filter_backends": []}
    return action(detail=not is_of_list, methods=["post"], **(of_list if is_of_list else {}))(act)


def urls_of(
    resources: Mapping[str, Resource[Any]], more: Mapping[str, Mapping[str, Any]]
) -> list[URLPattern | URLResolver]:
    """Return the URLs of resources by their paths. `more` has further members of their views."""
    router = SimpleRouter()
    # With or without the last slash: a redirect would turn a POST into a GET.
    router.trailing_slash = "/?"
    for name, resource in resources.items():
        router.register(name, viewset_of(resource, **more.get(name, {})), basename=f"api-{name}")
    return router.urls


# -- Usage: reports, and usage records as a file


class Usage(ApiView):
    """The usage that you may see: your own, and that of your projects and organisations. Keys
    with the scope `usage` may read it, too."""

    read_scope = Scope.USAGE
    query: ClassVar[dict[str, Any]] = {"get": [UsageQuery]}

    @extend_schema(responses=UsageSerializer)
    def get(self, request: Request) -> Response:
        """Sum up usage. With a granularity the response has points over time, and with `group_by`
        it has groups."""
        query = self.read_query(UsageQuery)
        try:
            return Response(usage.report(query, self.access))
        except ValueError as error:  # too many points
            raise serializers.ValidationError({"granularity": str(error)}) from None


class UsageExport(ApiView):
    """The usage records that you may see, one for each request, in order of time."""

    read_scope = Scope.USAGE
    query: ClassVar[dict[str, Any]] = {"get": [ExportQuery]}

    def perform_content_negotiation(self, request: Request, *_: Any, **__: Any) -> Any:
        """Let the query string choose the format, whatever the client accepts."""
        return super().perform_content_negotiation(request, force=True)

    @extend_schema(
        responses={
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/jsonl"): OpenApiTypes.STR,
        }
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Export usage as a file. The response streams, and may be long."""
        query = self.read_query(ExportQuery)
        texts = export(query.selection(self.access), query.format)
        response = StreamingHttpResponse(_chunks(texts), content_type=query.format.content_type)
        response["Content-Disposition"] = f'attachment; filename="usage.{query.format}"'
        return response


async def _chunks(texts: Iterator[str]) -> AsyncIterator[str]:
    """Yield the texts: of a sync iterator Django would read all before the first byte."""
    while (text := await sync_to_async(lambda: next(texts, None))()) is not None:
        yield text


@extend_schema(responses=users.MeSerializer)
@action(detail=False, methods=["get"])
def me(self: ResourceViewSet, request: Request) -> Response:
    """Read yourself, or the owner of your key, with all roles."""
    people = User.objects.prefetch_related(
        "memberships__user", "memberships__organization", "memberships__project"
    )
    caller = people.get(pk=self.access.user_id or 0)
    return Response(users.MeSerializer(caller, context=self.get_serializer_context()).data)


@extend_schema(responses=records.VerdictSerializer)
@action(detail=False, methods=["get"], filter_backends=[], pagination_class=None)
def verify(self: ResourceViewSet, request: Request) -> Response:
    """Verify the whole log. Only administrators of the platform may do this."""
    query = self.read_query(records.VerdictQuery)
    require_administrator(self.access)
    verdict = audit_log.verify(query.validated_data.get("newest_hash"))
    return Response({"is_whole": verdict.broken is None, **asdict(verdict)})


_MORE: Final[dict[str, dict[str, Any]]] = {
    "users": {"me": me},
    "audit": {"verify": verify, "query": {"verify": [records.VerdictQuery]}},
}
urlpatterns: list[URLPattern | URLResolver] = [
    *urls_of(registered(), _MORE),
    re_path("^usage/?$", Usage.as_view(), name="api-usage"),
    re_path("^usage/export/?$", UsageExport.as_view(), name="api-usage-export"),
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
]
