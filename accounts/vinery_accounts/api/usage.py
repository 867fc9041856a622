"""The endpoints of usage: reports, and usage records as a file."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from vinery_accounts.api.views import ApiView
from vinery_accounts.models import Scope
from vinery_accounts.resources import usage
from vinery_accounts.resources.usage import ExportQuery, UsageQuery, UsageSerializer
from vinery_accounts.usage.export import export


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
    """Yield the texts from an async iterator: Django would read all of a sync one before it sends
    the first."""
    while (text := await sync_to_async(lambda: next(texts, None))()) is not None:
        yield text
