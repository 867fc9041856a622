"""The query strings and bodies of usage reports, and whose statements a person may read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from vinery_accounts.access.access import Access
from vinery_accounts.base.money import MILLION
from vinery_accounts.models import ApiKey, Currency, Project, User
from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.resources.fields import MAX_ID, StrictSerializer, period_filters
from vinery_accounts.usage import reports
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.export import Format, Selection
from vinery_accounts.usage.filters import NO_STATUS, STATUS_CLASSES, Conditions, Dimension
from vinery_accounts.usage.periods import Granularity
from vinery_accounts.usage.reports import Figures, Group, Point, Question
from vinery_accounts.usage.rollups import LATENCIES, SUMS


@extend_schema_field(OpenApiTypes.STR)
class CommaListField(serializers.Field):  # type: ignore[type-arg]
    """Several values in one parameter, separated by commas."""

    def __init__(self, child: serializers.Field[Any, Any, Any, Any], **more: Any) -> None:
        self.child = child
        super().__init__(required=False, **more)

    def to_internal_value(self, data: Any) -> list[Any]:
        return [self.child.run_validation(word.strip()) for word in str(data).split(",")]


def _ids(what: str) -> CommaListField:
    child = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    return CommaListField(child, help_text=f"Ids of {what}, separated by commas.")


def _names(what: str) -> CommaListField:
    child = serializers.CharField(max_length=255)
    return CommaListField(child, help_text=f"{what}, separated by commas.")


def _choices(what: str, names: Iterable[str]) -> CommaListField:
    known = [*map(str, names)]
    text = f"{what}, separated by commas: {', '.join(known)}."
    return CommaListField(serializers.ChoiceField(choices=known), help_text=text)


class SelectionQuery(StrictSerializer):
    """Which usage."""

    key = _ids("keys")
    user = _ids("users")
    end_user = _names("End users")
    project = _ids("projects")
    organization = _ids("organisations")
    model = _names("Models")
    endpoint = _names("Endpoints, such as chat/completions")
    outcome = _choices("Outcomes", Outcome)
    status = _choices(
        f"Classes of HTTP status (`{NO_STATUS}`: requests without a response)",
        (*STATUS_CLASSES, NO_STATUS),
    )

    def get_fields(self) -> Any:
        return {**super().get_fields(), **period_filters()}

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        values.setdefault("to", timezone.now())
        values.setdefault("from", values["to"] - timedelta(days=1))
        if values["from"] >= values["to"]:
            raise serializers.ValidationError({"from": "The period ends before it begins."})
        return values

    @property
    def period(self) -> tuple[datetime, datetime]:
        """The start (inclusive) and the end (exclusive); default: the last day."""
        return self.validated_data["from"], self.validated_data["to"]


MEASURES: Final = {
    **{name: f"num_{name}" for name in ("requests", "tokens", "errors", "media")},
    "cost": "cost",
    "weighted": "weighted_tokens",
}
"""The columns that groups are sorted by, by their public names."""


class UsageQuery(SelectionQuery):
    """Which usage, and how it is grouped."""

    group_by = _choices("What to group by", Dimension)
    granularity = serializers.ChoiceField(
        choices=[*map(str, Granularity)],
        required=False,
        help_text="Return points of this length, too.",
    )
    time_zone = serializers.CharField(
        default="UTC", validators=[check_time_zone], help_text="In which days begin."
    )
    sort = serializers.ChoiceField(
        choices=[*MEASURES], default="requests", help_text="The largest groups first."
    )
    limit = serializers.IntegerField(
        default=20, min_value=1, max_value=200, help_text="How many groups."
    )


class ExportQuery(SelectionQuery):
    """Which usage records, and in which format."""

    file = serializers.ChoiceField(
        choices=[*map(str, Format)], default=Format.CSV.value, help_text="The format of the file."
    )

    @property
    def format(self) -> Format:
        return Format(self.validated_data["file"])

    def selection(self, access: Access) -> Selection:
        since, until = self.period
        filters = usage_filters(self.validated_data)
        return Selection(since=since, until=until, filters=filters, visible=access.visible())


class PercentilesSerializer(StrictSerializer):
    """Percentiles of durations, in milliseconds."""

    num = serializers.IntegerField(help_text="How many were measured.")
    p50 = serializers.FloatField()
    p95 = serializers.FloatField()
    p99 = serializers.FloatField()


_ABOUT: Final = {
    "num_limited": "Errors: refused by a limit, with 429.",
    "num_client_errors": "Errors: refused with another 4xx.",
    "num_server_errors": "Errors: failed or interrupted.",
    "num_cut_short": "Answers that a limit ended, which are no errors.",
    "num_media": "Pictures, videos and files of requests.",
    "num_media_bytes": "The size of these files.",
    "num_media_pixels": "What models saw of all pictures, pages and frames.",
    "total_ms": "Of whole answers.",
}


class FiguresSerializer(StrictSerializer):
    """Sums of usage. Cached, image, video and audio tokens are part of the prompt tokens, reasoning
    tokens part of the output tokens."""

    weighted_tokens = serializers.FloatField()
    cost = serializers.FloatField(
        allow_null=True, help_text="In the currency of the server; null without a currency."
    )

    def get_fields(self) -> Any:
        sums = [name for name in (*SUMS, "num_tokens") if name.startswith("num_")]
        return {
            **{k: serializers.IntegerField(help_text=_ABOUT.get(k)) for k in sums},
            **super().get_fields(),
            **{
                k: PercentilesSerializer(allow_null=True, help_text=_ABOUT.get(k))
                for k in LATENCIES.values()
            },
        }


class PointSerializer(StrictSerializer):
    """One point of a series."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    figures = FiguresSerializer()


class GroupSerializer(StrictSerializer):
    """Usage with the same values of the dimensions that it is grouped by."""

    values = serializers.DictField(
        help_text="By dimension: an id, null where there is none, or a name; the class of "
        "a status, such as `4xx`, null for requests without a response."
    )
    names = serializers.DictField(child=serializers.CharField(), help_text="The names of the ids.")
    figures = FiguresSerializer()
    points = PointSerializer(many=True)


class UsageSerializer(StrictSerializer):
    """Usage in a period. The period is widened to whole minutes or, where their rollups are
    deleted already, to whole hours or days."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    currency = serializers.CharField(
        allow_null=True, help_text="The currency of the server, such as EUR; null: it has none."
    )
    totals = FiguresSerializer()
    points = PointSerializer(many=True, help_text="Empty without a granularity.")
    groups = GroupSerializer(many=True, help_text="Empty without `group_by`.")
    num_groups = serializers.IntegerField(help_text="Including the groups beyond `limit`.")


def usage_filters(values: Mapping[str, Any]) -> Conditions:
    return {
        dimension: frozenset(
            None if dimension is Dimension.STATUS and name == NO_STATUS else name for name in names
        )
        for dimension in Dimension
        if (names := values.get(dimension))
    }


def question_of(
    period: tuple[datetime, datetime],
    values: Mapping[str, Any],
    visible: Conditions | None,
    zone: ZoneInfo,
) -> Question:
    granularity = values.get("granularity")
    return Question(
        since=period[0],
        until=period[1],
        filters=usage_filters(values),
        visible=visible,
        zone=zone,
        granularity=Granularity(granularity) if granularity else None,
    )


def report(query: UsageQuery, access: Access) -> dict[str, Any]:
    """Return the body of a usage report. Raises ValueError for too many points."""
    values = query.validated_data
    question = question_of(query.period, values, access.visible(), ZoneInfo(values["time_zone"]))
    by = list(dict.fromkeys(map(Dimension, values.get("group_by", ()))))
    return body_of(question, by, values["limit"], values["sort"])


def body_of(question: Question, by: Sequence[Dimension], num: int, sort: str) -> dict[str, Any]:
    """Return the body of a usage report. Raises ValueError for too many points."""
    granularity = question.granularity
    totals = reports.totals(question)
    points = reports.series(question) if granularity else ()
    more: Any = {"max_groups": num, "largest": MEASURES[sort], "with_points": bool(granularity)}
    found = reports.groups(question, by, **more) if by else None
    code = Currency.current()
    return {
        "since": totals.since,
        "until": totals.until,
        "currency": code or None,
        "totals": _figures(totals.figures, code),
        "points": [_point(point, code) for point in points],
        "groups": [_group(group, by, code) for group in found.groups] if found else [],
        "num_groups": found.num_groups if found else 0,
    }


def _figures(figures: Figures, code: str) -> dict[str, Any]:
    body = {name: getattr(figures, name) for name in SUMS}
    body["cost"] = round(figures.cost / MILLION, 9) if code else None
    for name in LATENCIES.values():
        percentiles = getattr(figures, name)
        body[name] = None if percentiles is None else asdict(percentiles)
    return {**body, "num_tokens": figures.num_tokens}


def _point(point: Point, code: str) -> dict[str, Any]:
    return {"since": point.since, "until": point.until, "figures": _figures(point.figures, code)}


def _group(group: Group, by: Sequence[Dimension], code: str) -> dict[str, Any]:
    return {
        "values": dict(zip(by, group.values, strict=True)),
        "names": dict(zip(by, group.names, strict=True)),
        "figures": _figures(group.figures, code),
        "points": [_point(point, code) for point in group.points],
    }


def readable_owners(access: Access) -> Mapping[str, QuerySet[Any]]:
    """Return whose statement a person may read: of all that the person leads, and of oneself."""
    led = access.led_organizations()
    projects = [pk for pk in access.projects if access.leads(None, pk)]
    oneself = User.objects.filter(pk=access.user_id or 0)
    of_led = Q(pk__in=access.rows_to_limit(ApiKey).order_by().values("pk"))
    return {
        "organization": led,
        "project": access.rows(Project).filter(Q(organization__in=led) | Q(pk__in=projects)),
        "user": oneself | access.rows_to_limit(User),
        "key": ApiKey.objects.filter(Q(owner__in=oneself) | of_led),
    }
