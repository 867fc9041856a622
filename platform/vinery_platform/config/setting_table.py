"""The table of all settings: names, meanings and defaults, for `vinery --help`, `vinery config` and
the keys of `vinery.toml`.

A key is the variable's name in lower case without `VINERY_`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from vinery_serving.core.field_limits import FIELD_LIMITS

_PREFIX: Final = "VINERY_"
_PEPPER: Final = re.compile(r"VINERY_KEY_PEPPER_[1-9]\d*")
FILE_SUFFIX: Final = "_FILE"


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable. `default` is a text for readers. The value of a secret may be in a file, which
    the variable with `_FILE` after its name names."""

    name: str
    meaning: str
    default: str
    is_secret: bool = False
    is_path: bool = False


_RETENTION: Final = "days; 0 is for ever"

SETTINGS: Final = (
    Setting(
        "VINERY_HOME",
        "folder of all state",
        "var in a clone, else the user's data folder",
        is_path=True,
    ),
    Setting("VINERY_HOST", "address to listen on", "127.0.0.1"),
    Setting("VINERY_PORT", "port to listen on; 0 takes a free one", "8000"),
    Setting("VINERY_SERVER", "uvicorn, or daphne for development or behind a proxy", "uvicorn"),
    Setting("VINERY_WEB_WORKERS", "number of web processes", "1"),
    Setting(
        "VINERY_HUNG_AFTER_S",
        "seconds after which a silent process is replaced; 0 for never",
        "4",
    ),
    Setting(
        "VINERY_DRAIN_S",
        "seconds that requests may still run when the server is stopped",
        "30",
    ),
    Setting(
        "VINERY_WEB_MEMORY_MB",
        "memory above which a web process is replaced; 0: any amount",
        "an eighth of the machine's, from 1024 to 4096",
    ),
    Setting(
        "VINERY_MODEL_MEMORY_MB",
        "memory for models: of the CPU, or of devices, such as CPU=8000,GPU=4000; 0: any amount",
        "80 % of the machine's for the CPU",
    ),
    Setting(
        "VINERY_MODEL_IDLE_S",
        "seconds without a request after which a model sleeps, unless it has its own; 0 for never",
        "0",
    ),
    Setting("VINERY_MIN_AWAKE_S", "seconds before a model that woke may make room for others", "5"),
    Setting("VINERY_WAKE_WAIT_S", "how long a request waits until its model is loaded", "60"),
    Setting("VINERY_AUTH", "on, or off to serve this machine without keys", "on"),
    Setting(
        "VINERY_PUBLIC_URL",
        "URL that clients use, if a proxy is in front; https hardens cookies",
        "none",
    ),
    Setting(
        "VINERY_METRICS_TOKEN",
        "bearer token for /metrics, which needs it with VINERY_PUBLIC_URL unless the client is on "
        "this machine",
        "none",
        is_secret=True,
    ),
    Setting(
        "VINERY_TRUSTED_PROXIES",
        "networks of trusted proxies, whose X-Forwarded-For is used",
        "this machine",
    ),
    Setting(
        "VINERY_ALLOWED_HOSTS",
        "host names that browsers may use, separated by commas",
        "those of VINERY_HOST and VINERY_PUBLIC_URL",
    ),
    Setting("VINERY_REQUIRE_2FA", "off, staff or all: who must have a second factor", "off"),
    Setting("VINERY_OIDC_ISSUER", "URL of an OpenID Connect issuer for sign-in", "none"),
    Setting("VINERY_OIDC_CLIENT_ID", "the client's id at the issuer", "none"),
    Setting(
        "VINERY_OIDC_CLIENT_SECRET", "the client's secret at the issuer", "none", is_secret=True
    ),
    Setting("VINERY_OIDC_NAME", "label of the issuer's button", "single sign-on"),
    Setting("VINERY_OIDC_SCOPES", "requested scopes", "openid,profile,email"),
    Setting("VINERY_OIDC_SIGN_UP", "on: sign-in through the issuer creates accounts", "off"),
    Setting(
        "VINERY_OIDC_LINK_BY_EMAIL",
        "on: an address that the issuer has verified signs in to its account",
        "off",
    ),
    Setting("VINERY_OIDC_GROUPS_CLAIM", "claim that lists a user's groups", "none"),
    Setting("VINERY_OIDC_ADMIN_GROUP", "group whose members are superusers", "none"),
    Setting("VINERY_OIDC_ROLES", "group=role pairs, separated by commas", "none"),
    Setting("VINERY_OIDC_ORGANIZATION", "organisation of new users", "the first one"),
    Setting(
        "VINERY_EMAIL_URL",
        "smtp://user:password@host for STARTTLS, smtps:// for TLS",
        "no mail",
        is_secret=True,
    ),
    Setting("VINERY_EMAIL_FROM", "sender of e-mails", "vinery@ and the host"),
    Setting("VINERY_MAX_CONNECTIONS", "connections of one web process", "100000"),
    Setting("VINERY_MAX_CONNECTIONS_PER_ADDRESS", "connections of one address", "2000"),
    Setting("VINERY_MAX_BODY_MB", "largest request body", "64"),
    Setting(
        "VINERY_MAX_BODIES_MB", "bodies of all running requests; half of it for each key", "256"
    ),
    Setting("VINERY_BODY_TIMEOUT_S", "how long a request's body may take", "120"),
    Setting("VINERY_MAX_FORM_MB", "largest form or body of the management API", "1"),
    Setting(
        "VINERY_UNKNOWN_FIELDS",
        "ignore (and name in a header) or refuse: fields that the server does not know",
        "ignore",
    ),
    Setting(
        "VINERY_HOSTED_FEATURES",
        "ignore (and name in a header) or refuse: store, and tools that only OpenAI hosts",
        "ignore",
    ),
    Setting(
        "VINERY_WORK_PROCESSES",
        "worker processes of each web process",
        "the cores, at least 2",
    ),
    Setting("VINERY_WORK_TIME_S", "processor time of a step of reading a request", "5"),
    Setting("VINERY_WORK_MEMORY_MB", "memory of a step of reading a request", "1024"),
    Setting("VINERY_WORK_QUEUE", "requests of a key that wait for a worker process", "2048"),
    Setting("VINERY_WORK_WAIT_S", "how long a request waits for a worker process", "600"),
    Setting("VINERY_MEDIA_FETCHES", "files that a web process fetches at the same time", "32"),
    Setting("VINERY_MEDIA_FETCHES_OF_KEY", "of them for one key", "8"),
    Setting("VINERY_MEDIA_FETCHED_MB", "all files that one request names", "64"),
    Setting(
        "VINERY_MEDIA_CACHE_MB", "fetched files that a web process keeps in memory; 0: none", "64"
    ),
    Setting("VINERY_MEDIA_CACHE_S", "how long they are kept, for the same project", "60"),
    Setting("VINERY_MEDIA_FRAMES", "frames of a video that a model sees", "32"),
    Setting("VINERY_MEDIA_DECODE_MS", "processor time that decodes one file", "1800"),
    Setting("VINERY_PAGE_THREADS", "requests for pages that run at once in a web process", "4"),
    Setting(
        "VINERY_MIN_FREE_DISK_MB", "free disk space below which health reports degraded", "256"
    ),
    Setting("VINERY_REQUEST_TIMEOUT_S", "longest generation", "600"),
    Setting(
        "VINERY_QUARANTINE_S",
        "how long a request that ended two engines is refused; 0: it is not",
        "86400",
    ),
    Setting(
        "VINERY_LIMITS_WHEN_AWAY",
        "allow or refuse: requests while Redis is unavailable",
        "allow",
    ),
    Setting("VINERY_ALERT_AT", "percentages of quotas at which an alert is sent", "50,80,100"),
    Setting(
        "VINERY_WEBHOOK_NETWORKS",
        "private networks that webhooks may call, also without TLS",
        "none",
    ),
    Setting("VINERY_RETENTION_ROWS_DAYS", f"retention of usage records in {_RETENTION}", "30"),
    Setting("VINERY_RETENTION_REFUSALS_DAYS", f"retention of refusals in {_RETENTION}", "30"),
    Setting("VINERY_RETENTION_BY_MINUTE_DAYS", f"retention of sums by minute in {_RETENTION}", "7"),
    Setting("VINERY_RETENTION_BY_HOUR_DAYS", f"retention of sums by hour in {_RETENTION}", "365"),
    Setting("VINERY_RETENTION_BY_DAY_DAYS", f"retention of sums by day in {_RETENTION}", "0"),
    Setting("VINERY_RETENTION_ALERTS_DAYS", f"retention of alerts in {_RETENTION}", "365"),
    Setting(
        "VINERY_JOB_MEMORY_MB",
        "memory of a conversion, which fails above it",
        "what is free at its start, less 1024",
    ),
    Setting(
        "VINERY_JOB_TORCH_INDEX",
        "package index with builds of torch for CPUs; none: that of pip",
        "PyTorch's own",
    ),
    Setting("VINERY_DOCS", "off turns off the pages under /docs/", "on"),
    Setting("VINERY_LOG_LEVEL", "debug, info, warning or error", "info"),
    Setting("VINERY_LOG_FORMAT", "text or json: lines on standard output and in files", "text"),
    Setting("VINERY_LOG_FILE_MB", "the size of a log file", "10"),
    Setting("VINERY_LOG_FILES", "how many log files each process and each model has", "5"),
    Setting("VINERY_DEBUG", "on shows errors in the browser; on this machine only", "off"),
    Setting("HF_ENDPOINT", "URL of the hub that models are pulled from", "https://huggingface.co"),
    Setting("HF_TOKEN", "token for private and gated models of the hub", "none", is_secret=True),
    Setting(
        "DATABASE_URL", "PostgreSQL server", "a SQLite file in the home folder", is_secret=True
    ),
    Setting(
        "REDIS_URL",
        "Redis server, for several hosts",
        "files in the home folder and memory",
        is_secret=True,
    ),
    Setting(
        "VINERY_SECRET_KEY",
        "secret that signs sessions, for hosts that share a database",
        "generated in the home folder",
        is_secret=True,
    ),
    Setting(
        "VINERY_SECRET_KEY_FALLBACKS",
        "earlier keys, which still decrypt what they encrypted",
        "none",
        is_secret=True,
    ),
    Setting(
        "VINERY_KEY_PEPPER_1",
        "secret under which API keys are hashed, for hosts that share a database",
        "generated in the home folder",
        is_secret=True,
    ),
)


def key_of(name: str) -> str:
    """The key in `vinery.toml` of a variable."""
    return name.removeprefix(_PREFIX).lower()


@cache
def known() -> Mapping[str, Setting]:
    """All settings by the key in `vinery.toml`, also the files of secrets and the limits of
    fields, but only the first pepper."""
    return {key_of(setting.name): setting for setting in _all()}


def with_key(key: str) -> Setting | None:
    """The setting of a key in `vinery.toml`; None if there is none."""
    name = f"{_PREFIX}{key.upper()}"
    if _PEPPER.fullmatch(name.removesuffix(FILE_SUFFIX)) and key.islower():
        pepper = replace(known()["key_pepper_1"], name=name.removesuffix(FILE_SUFFIX))
        return _file_of(pepper) if name.endswith(FILE_SUFFIX) else pepper
    return known().get(key)


def _all() -> Iterator[Setting]:
    for setting in SETTINGS:
        yield setting
        if setting.is_secret:
            yield _file_of(setting)
    for limit in FIELD_LIMITS:
        yield Setting(limit.setting, f"limit of {limit.fields}", str(limit.default))


def _file_of(secret: Setting) -> Setting:
    name = f"{secret.name}{FILE_SUFFIX}"
    return Setting(name, f"file with {secret.name}", "none", is_path=True)
