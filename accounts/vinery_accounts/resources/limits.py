"""Limits, quotas (limits with their use), weights of tokens in budgets, and owners of limits."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from django.db.models import Model, QuerySet
from django.utils import timezone
from rest_framework import serializers

from vinery_accounts.access.access import Access
from vinery_accounts.access.served import check_models, visible_models
from vinery_accounts.base.limit_table import Metric
from vinery_accounts.base.money import money
from vinery_accounts.models import OWNERS, Currency, Limit, LimitScope, ModelWeight, Project
from vinery_accounts.models.keys import ApiKey, Scope
from vinery_accounts.models.limits import check_percents
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import EVERYTHING, Resource, columns_of

KIND: Final = ("scope", "scope_id", "model", "metric", "window")
"""The fields that identify a limit: another kind is another limit."""


class LimitSerializer(fields.StrictModelSerializer):
    """At most `amount` of a metric, in a window, for a scope."""

    scope_id = serializers.IntegerField(
        default=0, min_value=0, max_value=fields.MAX_ID, help_text="0 for models and the platform."
    )
    amount = serializers.IntegerField(
        min_value=1,
        max_value=fields.MAX_ID,
        help_text="Maximum per window; of the cost in millionths of the currency.",
    )
    alert_at = serializers.ListField(
        label="Alerts at",
        child=serializers.IntegerField(min_value=1, max_value=100),
        required=False,
        allow_null=True,
        max_length=10,
        validators=[check_percents],
        help_text="Percentages of a quota at which an alert is sent, in rising order; null: "
        "those of the platform, []: none.",
    )

    class Meta:
        model = Limit
        fields = [
            *("id", "scope", "scope_id", "model", "metric", "window", "amount", "time_zone"),
            *("week_start", "is_shadow", "alert_at", "created_at", "updated_at"),
        ]
        validators = ()
        fixed = KIND
        extra_kwargs = {
            "model": {"help_text": "The name of the model, for a limit of a model."},
            "time_zone": {
                "help_text": "In which days, weeks and months begin, such as Europe/Berlin."
            },
            "week_start": {
                "label": "Weeks begin on",
                "help_text": "The first day of a week; monday for limits of another window.",
            },
            "is_shadow": {
                "label": "Monitor only",
                "help_text": "Log violations, do not block (a shadow limit).",
            },
        }

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        scope, scope_id = values.get("scope", ""), values.get("scope_id")
        owners = OWNERS.get(scope) if scope_id else None
        access = self.context["access"]
        if owners and not access.rows(owners).filter(pk=scope_id).exists():
            kind = str(owners._meta.verbose_name)
            text = fields.not_found(kind, scope_id, access)
            raise serializers.ValidationError({"scope_id": text})
        return values


class Limits(Resource[Limit]):
    """Limits on keys, users, projects, each end user of a project, organisations, models and the
    platform. A request has to satisfy all that apply to it. Admins of an organisation set those of
    its projects; administrators of the platform those of organisations, models and the platform."""

    model = Limit
    path = "limits"
    serializer = LimitSerializer
    filters = fields.Filters.of(
        scope=fields.choice_filter(LimitScope.choices, "Only of this scope."),
        scope_id=serializers.IntegerField(
            required=False,
            min_value=0,
            max_value=fields.MAX_ID,
            help_text="Only of the owner with this id.",
        ),
        model=fields.text_filter("Only of this model."),
        **fields.limit_filters(),
    )
    ordering = KIND
    one, many = "a limit", "limits"
    verbs = frozenset({"create", "change", "remove"})
    help: ClassVar = {"remove": "Other limits stay. Takes effect within two seconds."}
    empty_text = "No limit yet: every user may use everything. Add a limit where that is too much."
    columns = columns_of(
        "id scope whose metric window amount time_zone week_start shadow=is_shadow"
    )
    search = ("model", "scope_id")

    def choices(self, access: Access) -> Mapping[str, Any]:
        return {"model": _counted_models(access)}

    def check(self, access: Access, row: Limit, stored: Limit | None = None) -> None:
        super().check(access, row, stored)
        _check_model(row, stored)

    def extra_columns(self, rows: Sequence[Limit]) -> Sequence[Mapping[str, Any]]:
        texts = in_money(rows, ("amount",))
        return [{"whose": w, **more} for w, more in zip(_owners(rows), texts, strict=True)]


def in_money(rows: Sequence[Any], names: Sequence[str]) -> list[dict[str, str]]:
    """Return the amounts of each row that is about a cost, in words."""
    code = Currency.current() if any(row.metric == Metric.COST for row in rows) else ""
    return [
        {name: money(getattr(row, name), code) for name in names if row.metric == Metric.COST}
        for row in rows
    ]


def _owners(limits: Sequence[Limit]) -> list[str]:
    names: dict[tuple[str, int], str] = {}
    for scope, table in OWNERS.items():
        ids = {limit.scope_id for limit in limits if limit.scope == scope}
        rows = table._default_manager.filter(pk__in=ids)
        if table is Project:
            rows = rows.select_related("organization")
        names |= {(scope, row.pk): str(row) for row in rows}
    return [
        each.model or names.get((each.scope, each.scope_id), str(each.scope_id or ""))
        for each in limits
    ]


class QuotaSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A limit of a day, a week, a month or without end, with its use."""

    used = serializers.IntegerField(help_text="Used in the window, from the usage records.")
    left = serializers.IntegerField(help_text="0 when the quota is used up.")
    window_start = serializers.DateTimeField()
    resets_at = serializers.DateTimeField(allow_null=True, help_text="null: never.")
    runs_out_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When nothing may be left, at the rate of the window and the last seven days; "
        "null: the quota lasts until it resets, or less than a tenth of it or than 15 minutes of "
        "usage are known.",
    )

    class Meta:
        model = Limit
        fields = [
            *("id", "scope", "scope_id", "model", "metric", "window", "amount", "time_zone"),
            *("week_start", "is_shadow"),
            *("used", "left", "window_start", "resets_at", "runs_out_at"),
        ]


class Quotas(Resource[Limit]):
    """How much of each quota is used, when it resets and when it runs out. Quotas of the platform
    and of models are for administrators of the platform. Keys with the scope `usage` may read
    quotas, too."""

    model = Limit
    path = "quotas"
    serializer = QuotaSerializer
    filters = Limits.filters
    ordering = KIND
    one, many = "a quota", "quotas"
    read_scope = Scope.USAGE.value
    columns = columns_of(
        "id scope whose metric window amount used left resets=resets_at runs_out=runs_out_at "
        "shadow=is_shadow"
    )

    def rows(self, access: Access) -> QuerySet[Limit]:
        return access.quotas_seen()

    def load(self, rows: Sequence[Limit]) -> Sequence[Limit]:
        from vinery_accounts.alerts import quotas  # a third of the imports of a command

        found = quotas.read_quotas(rows, timezone.now())
        for quota in found:
            times = ("window_start", "resets_at", "runs_out_at")
            read = {name: getattr(quota, name) for name in times}
            vars(quota.limit).update(used=quota.num_used, left=quota.num_left, **read)
        return [quota.limit for quota in found]

    def extra_columns(self, rows: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        texts = in_money(rows, ("amount", "used", "left"))
        return [
            {"whose": whose, "since": row.window_start, **more}
            for row, whose, more in zip(rows, _owners(rows), texts, strict=True)
        ]


class Currencies(Resource[Currency]):
    """The currency of the whole installation, at most one. Since then, the weights of a model are
    its prices for a million tokens, and usage has a cost. Another code only renames the currency:
    amounts of the past stay as they are."""

    model = Currency
    path, title = "currency", "Currency"
    field_names = "id code created_at updated_at"
    read_only = "created_at"
    one, many = "the currency", "currencies"
    verbs = frozenset({"create", "change", "remove"})
    help: ClassVar = {
        "remove": "Usage has no cost from then on. Past costs stay stored, and are not shown."
    }
    empty_text = "No currency yet: usage is counted in tokens."
    columns = columns_of("code since=created_at")

    def may_create(self, access: Access) -> bool:
        return access.is_superuser and not Currency.current()


class ModelWeights(Resource[ModelWeight]):
    """Weights of tokens in budgets; with a currency, the prices of a million tokens of each sort.
    Each token of a model without weights counts 1, and costs nothing."""

    model = ModelWeight
    path, title = "model-weights", "Prices and weights"
    field_names = "id model uncached cached output image updated_at"
    fixed = "model"
    filters = fields.Filters.of(model=fields.text_filter("Only of this model."))
    ordering = ("model",)
    one, many = "the weights of a model", "weights of models"
    verbs = frozenset({"create", "change", "remove"})
    help: ClassVar = {
        "remove": "Each token of the model counts 1 and costs nothing from then on. Past costs "
        "stay. To undo this, set the weights again."
    }
    empty_text = "None yet: each token of each model counts 1 and costs nothing."
    columns = columns_of("model input=uncached cached_input=cached output image")
    search = ("model",)

    def notice(self) -> str:
        code = Currency.current()
        if not code:
            return ""
        return f"In {code} for a million tokens. A model without prices costs nothing."

    def may_create(self, access: Access) -> bool:
        return access.is_superuser

    def initial(self, access: Access) -> Mapping[str, Any]:
        names = ("uncached", "cached", "output", "image") if Currency.current() else ()
        return dict.fromkeys(names, 0)

    def choices(self, access: Access) -> Mapping[str, Any]:
        return {"model": _counted_models(access)}

    def check(self, access: Access, row: ModelWeight, stored: ModelWeight | None = None) -> None:
        super().check(access, row, stored)
        _check_model(row, stored)


def _counted_models(access: Access) -> list[str]:
    return [each.name for each in visible_models(access) if not each.is_alias]


def _check_model(row: Limit | ModelWeight, stored: Limit | ModelWeight | None) -> None:
    """Raise ValidationError for a name of no model. Usage counts by the names of models."""
    if row.model and (stored is None or stored.model != row.model):
        check_models("model", [row.model], takes_aliases=False)


def prices_of(names: Collection[str]) -> dict[str, str]:
    """Return the prices of models in words; empty without a currency."""
    code = Currency.current()
    if not code:
        return {}
    texts = {
        each.model: f"{each.uncached:g} input, {each.cached:g} cached input, {each.output:g} "
        f"output, {each.image:g} image; {code} for a million tokens"
        for each in ModelWeight.objects.filter(model__in=names)
    }
    return {name: texts.get(name, "no price") for name in names}


# -- What a scope such as `key:12` means to people

_MAX_CHOICES: Final = 200  # of each kind, the newest


def owner_choices(
    owners: Mapping[str, QuerySet[Any]], chosen: str = ""
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the choices of a form, a group for each kind. `chosen` is always one, if it exists."""
    for kind, rows in owners.items():
        ids = list(rows.order_by("-pk").values_list("pk", flat=True)[:_MAX_CHOICES])
        scope, _, owner = chosen.partition(":")
        if scope == kind and (pk := fields.id_of(owner)):
            ids += rows.filter(pk=pk).values_list("pk", flat=True)
        if OWNERS[kind] is Project:  # of one name in several organisations
            projects = Project.objects.filter(pk__in=ids).select_related("organization")
            named = {row.pk: str(row) for row in projects}
        else:
            named = names_of(EVERYTHING, OWNERS[kind], ids)
        if named:
            name = f"{kind.replace('z', 's').capitalize()}s"
            group = "Each end user of" if kind == LimitScope.END_USER else name
            yield group, [(f"{kind}:{pk}", name) for pk, name in named.items()]


def owners_of(access: Access, scopes: Iterable[str]) -> dict[str, str]:
    """Return a phrase for each scope, such as `key:12`. A removed owner, or an owner that the
    caller may not see, is named by its id. One query for each table."""
    wanted = set(scopes)
    ids: defaultdict[str, set[int]] = defaultdict(set)
    for scope in wanted:
        kind, _, owner = scope.partition(":")
        if kind in OWNERS and owner.isdecimal():
            ids[kind].add(int(owner))
    names = {
        f"{kind}:{pk}": name
        for kind, found in ids.items()
        for pk, name in names_of(access, OWNERS[kind], found).items()
    }
    return {scope: _phrase(scope, names.get(scope)) for scope in wanted}


def names_of(access: Access, table: type[Model], ids: Collection[int]) -> dict[int, str]:
    """Return the names of the rows that the caller may see, by id. Several keys may share a
    name, so a key's name includes its hint, owner and project."""
    rows = access.rows(table).filter(pk__in=ids)
    if table is ApiKey:
        rows = rows.select_related("owner", "project")
    return {row.pk: _name(row) for row in rows}


def _name(row: Any) -> str:
    if isinstance(row, ApiKey):
        return f"{row.name} ({row.hint}, {row.owner}, {row.project.name})"
    return getattr(row, "name", "") or str(row)


def _phrase(scope: str, name: str | None) -> str:
    kind, _, owner = scope.partition(":")
    if not owner:
        return "the whole platform"
    if kind == LimitScope.END_USER:
        return f"each end user of the project {name or owner}"
    return f"the {'organisation' if kind == 'organization' else kind} {name or owner}"


LIMITS: Final = Limits()
QUOTAS: Final = Quotas()
CURRENCIES: Final = Currencies()
MODEL_WEIGHTS: Final = ModelWeights()
