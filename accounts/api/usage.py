"""How much was used: sums, points over time and groups, and the rows themselves as a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.base import Guarded
from accounts.api.wire import MAX_ID, Strict, period_filters
from accounts.models import Scope
from accounts.models.limits import check_time_zone
from accounts.usage import reports
from accounts.usage.entries import Outcome
from accounts.usage.export import Format, Selection, export
from accounts.usage.filters import NO_STATUS, STATUS_CLASSES, Dimension, Filters
from accounts.usage.periods import Granularity
from accounts.usage.reports import Figures, Group, Point, Question

_USUAL_PERIOD: Final = timedelta(days=1)
_LARGEST: Final = {"requests": "num_requests", "tokens": "num_tokens", "errors": "num_errors"}


@extend_schema_field(OpenApiTypes.STR)
class Words(serializers.Field):  # type: ignore[type-arg]
    """Several values in one parameter, with commas between them."""

    def __init__(self, child: serializers.Field[Any, Any, Any, Any], **more: Any) -> None:
        self.child = child
        super().__init__(required=False, **more)

    def to_internal_value(self, data: Any) -> list[Any]:
        """Raises ValidationError for a value that is none."""
        return [self.child.run_validation(word.strip()) for word in str(data).split(",")]

    def to_representation(self, value: Any) -> Any:
        """Never asked for: queries are only read."""
        return ",".join(map(str, value))


class Ids(Words):
    """Several ids."""

    def __init__(self, what: str) -> None:
        super().__init__(
            serializers.IntegerField(min_value=1, max_value=MAX_ID),
            help_text=f"Ids of {what}, with commas between them.",
        )


class Names(Words):
    """Several names."""

    def __init__(self, what: str) -> None:
        child = serializers.CharField(max_length=255)
        super().__init__(child, help_text=f"{what}, with commas between them.")


class Statuses(Words):
    """Several classes of HTTP status."""

    def __init__(self) -> None:
        names = [*STATUS_CLASSES, NO_STATUS]
        super().__init__(
            serializers.ChoiceField(choices=names),
            help_text=f"Classes of HTTP status, with commas between them: {', '.join(names)} "
            f"(`{NO_STATUS}`: what was never answered).",
        )

    def to_internal_value(self, data: Any) -> list[Any]:
        """As filters have them."""
        return [None if name == NO_STATUS else name for name in super().to_internal_value(data)]


class SelectionQuery(Strict):
    """Which usage."""

    key = Ids("keys")
    user = Ids("users")
    project = Ids("projects")
    organization = Ids("organisations")
    model = Names("Models")
    endpoint = Names("Endpoints, such as chat/completions")
    outcome = Words(
        serializers.ChoiceField(choices=[(each.value, each.label) for each in Outcome]),
        help_text=f"Outcomes, with commas between them: {', '.join(Outcome)}.",
    )
    status = Statuses()

    def get_fields(self) -> Any:
        """With two names, of which one is a word of Python."""
        return {**super().get_fields(), **period_filters()}

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Raises ValidationError for a period that ends before it begins."""
        values.setdefault("to", timezone.now())
        values.setdefault("from", values["to"] - _USUAL_PERIOD)
        if values["from"] >= values["to"]:
            raise serializers.ValidationError({"from": "The period ends before it begins."})
        return values

    @property
    def period(self) -> tuple[datetime, datetime]:
        """The last day, unless asked otherwise."""
        return self.validated_data["from"], self.validated_data["to"]

    @property
    def wanted(self) -> Filters:
        """What all rows have."""
        values = self.validated_data
        return Filters(**{each.plural: frozenset(values.get(each, ())) for each in Dimension})


class UsageQuery(SelectionQuery):
    """Which usage, and how it is told."""

    group_by = Words(
        serializers.ChoiceField(choices=[(each.value, each.value) for each in Dimension]),
        help_text=f"What to group by, with commas between: {', '.join(Dimension)}.",
    )
    granularity = serializers.ChoiceField(
        choices=[(each.value, each.value) for each in Granularity],
        required=False,
        help_text="Tell points of this length, too.",
    )
    time_zone = serializers.CharField(
        default="UTC", validators=[check_time_zone], help_text="In which days begin."
    )
    sort = serializers.ChoiceField(
        choices=list(_LARGEST), default="requests", help_text="Groups with the most of it first."
    )
    limit = serializers.IntegerField(
        default=20, min_value=1, max_value=200, help_text="How many groups."
    )


class ExportQuery(SelectionQuery):
    """Which rows, and how they are written."""

    file = serializers.ChoiceField(
        choices=[(each.value, each.value) for each in Format],
        default=Format.CSV.value,
        help_text="The format of the file.",
    )


class PercentilesBody(Strict):
    """Of durations, in milliseconds."""

    num = serializers.IntegerField(help_text="How many were measured.")
    p50 = serializers.FloatField()
    p95 = serializers.FloatField()
    p99 = serializers.FloatField()


class FiguresBody(Strict):
    """What was used. Cached, image and audio tokens are part of the prompt's, reasoning tokens
    of the output's."""

    num_requests = serializers.IntegerField()
    num_errors = serializers.IntegerField()
    num_tokens = serializers.IntegerField()
    num_prompt_tokens = serializers.IntegerField()
    num_cached_tokens = serializers.IntegerField()
    num_image_tokens = serializers.IntegerField()
    num_audio_tokens = serializers.IntegerField()
    num_output_tokens = serializers.IntegerField()
    num_reasoning_tokens = serializers.IntegerField()
    weighted_tokens = serializers.FloatField()
    energy_mj = serializers.IntegerField(
        help_text="Millijoules that were attributed to the requests; 0 where none were measured."
    )
    first_token_ms = PercentilesBody(allow_null=True)
    inter_token_ms = PercentilesBody(allow_null=True)
    total_ms = PercentilesBody(allow_null=True)
    queue_ms = PercentilesBody(allow_null=True)


class PointBody(Strict):
    """One of a series."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    figures = FiguresBody()


class GroupBody(Strict):
    """What has the same values in what is grouped by."""

    values = serializers.DictField(
        help_text="By dimension: an id, null for who has none, or a name; the class of a "
        "status, such as `4xx`, null for what was never answered."
    )
    names = serializers.DictField(child=serializers.CharField(), help_text="What an id was called.")
    figures = FiguresBody()
    points = PointBody(many=True)


class UsageBody(Strict):
    """What was used in a period, which is widened to whole minutes, and, where these are
    deleted already, to whole hours or days."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    totals = FiguresBody()
    points = PointBody(many=True, help_text="Empty without a granularity.")
    groups = GroupBody(many=True, help_text="Empty without something to group by.")
    num_groups = serializers.IntegerField(help_text="With those that the limit leaves out.")


class Usage(Guarded):
    """What was used of what you may see: your own, and that of your projects and organisations.
    Keys with the scope `usage` read it, too."""

    read_scope = Scope.USAGE
    query: ClassVar[dict[str, Any]] = {"get": [UsageQuery]}

    @extend_schema(responses=UsageBody)
    def get(self, request: Request) -> Response:
        """Sum up usage. With a granularity there are points over time, and with something to
        group by there are groups."""
        query = UsageQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        try:
            return Response(self._told(query))
        except ValueError as error:  # a period that is too long for its points
            raise serializers.ValidationError({"granularity": str(error)}) from None

    def _told(self, query: UsageQuery) -> dict[str, Any]:
        values = query.validated_data
        since, until = query.period
        granularity = values.get("granularity")
        question = Question(
            since=since,
            until=until,
            filters=query.wanted,
            visible=self.access.visible(),
            zone=ZoneInfo(values["time_zone"]),
            granularity=Granularity(granularity) if granularity else None,
        )
        totals = reports.totals(question)
        points = reports.series(question) if granularity else ()
        by = list(dict.fromkeys(map(Dimension, values.get("group_by", ()))))
        found = (
            reports.groups(
                question,
                by,
                max_groups=values["limit"],
                largest=_LARGEST[values["sort"]],
                with_points=bool(granularity),
            )
            if by
            else None
        )
        return {
            "since": totals.since,
            "until": totals.until,
            "totals": _figures(totals.figures),
            "points": [_point(point) for point in points],
            "groups": [_group(group, by) for group in found.groups] if found else [],
            "num_groups": found.num_groups if found else 0,
        }


class _AnyFormat(DefaultContentNegotiation):
    """A file is what it is, whatever the client says that it accepts."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        """The first, which only errors use."""
        return renderers[0], renderers[0].media_type


class UsageExport(Guarded):
    """The rows of the books that you may see, one for each request, in order of time."""

    read_scope = Scope.USAGE
    content_negotiation_class = _AnyFormat
    query: ClassVar[dict[str, Any]] = {"get": [ExportQuery]}

    @extend_schema(
        responses={
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/jsonl"): OpenApiTypes.STR,
        }
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Export usage as a file, which begins at once and may be long."""
        query = ExportQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        since, until = query.period
        form = Format(query.validated_data["file"])
        selection = Selection(
            since=since, until=until, filters=query.wanted, visible=self.access.visible()
        )
        response = StreamingHttpResponse(
            _in_pieces(export(selection, form)), content_type=form.content_type
        )
        response["Content-Disposition"] = f'attachment; filename="usage.{form.value}"'
        return response


async def _in_pieces(texts: Iterator[str]) -> AsyncIterator[str]:
    """Asynchronous, because Django would otherwise read all of it before it sends the first."""
    while (text := await sync_to_async(lambda: next(texts, None))()) is not None:
        yield text


def _figures(figures: Figures) -> dict[str, Any]:
    return {**asdict(figures), "num_tokens": figures.num_tokens}


def _point(point: Point) -> dict[str, Any]:
    return {"since": point.since, "until": point.until, "figures": _figures(point.figures)}


def _group(group: Group, by: list[Dimension]) -> dict[str, Any]:
    return {
        "values": dict(zip(by, group.values, strict=True)),
        "names": dict(zip(by, group.names, strict=True)),
        "figures": _figures(group.figures),
        "points": [_point(point) for point in group.points],
    }
