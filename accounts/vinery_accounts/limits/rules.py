"""A limit: at most an amount of a metric, in a window, for a scope."""

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, Self
from zoneinfo import ZoneInfo

from vinery_accounts.base.limit_table import MAX_AMOUNT as MAX_AMOUNT
from vinery_accounts.base.limit_table import SCALE as SCALE
from vinery_accounts.base.limit_table import Kind as Kind
from vinery_accounts.base.limit_table import Metric as Metric
from vinery_accounts.base.limit_table import Weekday as Weekday
from vinery_accounts.base.limit_table import Window as Window
from vinery_accounts.base.limit_table import in_words as in_words

PLATFORM: Final = "platform"
END_USER: Final = "end_user"
_COLUMNS: Final = {metric: column for column, metric in enumerate(Metric)}


@dataclass(frozen=True, slots=True)
class Rule:
    """At most `amount` of a metric in a window, for all requests of a scope together.

    `scope` is `key:<id>`, `user:<id>`, `project:<id>`, `organization:<id>`, `model:<name>`,
    `platform` or `end_user:<id of a project>`, whose rules are counted for each end user alone (see
    `of_end_user`). `time_zone` is an IANA name and sets where midnight is; `week_start` matters to
    weeks alone. A shadow rule is counted as if it were enforced, and refuses nothing.

    Concurrency has no window. Another metric without a window is a budget that never resets. The
    limiter keeps the use when `amount`, `is_shadow` or the id in `scope` changes: a rotation moves
    a limit to the new key. A change of another field begins a new count.

    Raises ValueError for a combination that has no meaning, and
    `zoneinfo.ZoneInfoNotFoundError` for an unknown time zone.
    """

    id: int
    scope: str
    metric: Metric
    window: Window
    amount: int
    time_zone: str = "UTC"
    is_shadow: bool = False
    week_start: Weekday = Weekday.MONDAY
    end_user: str = field(default="", repr=False)  # a digest: clients send addresses
    currency: str = ""  # of the amount, for messages

    # Computed from the others once, because a request reads them many times.
    key: str = field(init=False, repr=False, compare=False)
    limit_key: str = field(init=False, repr=False, compare=False)  # of all end users
    kind: Kind = field(init=False, repr=False, compare=False)
    column: int = field(init=False, repr=False, compare=False)  # of `Costs`
    capacity: int = field(init=False, repr=False, compare=False)  # in fixed-point units
    scale: int = field(init=False, repr=False, compare=False)
    # How often a bucket refills by its amount in fixed-point units; 0 for other kinds.
    tick_ms: int = field(init=False, repr=False, compare=False)
    # Rules of one calendar have the same windows.
    calendar: tuple[str, str, str] = field(init=False, repr=False, compare=False)
    # Whether the limiter may refuse a request for long because of what a running request has
    # reserved and may not use.
    may_be_returned: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.amount <= self.metric.max_amount:
            raise ValueError(f"amount must be from 0 to {self.metric.max_amount}")
        is_concurrency = self.metric is Metric.CONCURRENCY
        if is_concurrency and self.window is not Window.NONE:
            raise ValueError("concurrency counts running requests: it has no window")
        kind = Kind.CONCURRENCY if is_concurrency else self.window.kind
        key = f"{self.id}:{self.scope_kind}:{self.metric.value}:{self.window.value}"
        if kind is Kind.CALENDAR:
            key += f":{ZoneInfo(self.time_zone).key}"
        if self.window is Window.WEEK:
            key += f":{self.week_start.value}"
        computed = {
            "key": f"{key}:{self.end_user}" if self.end_user else key,
            "limit_key": key,
            "kind": kind,
            "column": _COLUMNS[self.metric],
            "capacity": self.amount * self.metric.scale,
            "scale": self.metric.scale,
            "tick_ms": self.window.period_ms // self.metric.scale,
            "calendar": (self.window.value, self.time_zone, self.week_start.value),
            "may_be_returned": kind in _QUOTAS and self.metric.is_reserved_ahead,
        }
        for name, value in computed.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash(self.key)

    def of_end_user(self, end_user: str) -> Self:
        named = end_user.encode("utf-8", "replace")
        return replace(self, end_user=blake2b(named, digest_size=16).hexdigest())

    @property
    def is_quota(self) -> bool:
        return self.kind in _QUOTAS

    @property
    def scope_kind(self) -> str:
        """`key`, `user`, `project`, `organization`, `model`, `platform` or `end_user`."""
        return self.scope.partition(":")[0]

    @property
    def owner(self) -> str:
        """The id or the name in the scope; empty for the platform."""
        return self.scope.partition(":")[2]


_QUOTAS: Final = (Kind.CALENDAR, Kind.TOTAL)
