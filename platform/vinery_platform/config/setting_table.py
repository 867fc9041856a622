"""The table of all settings: names, meanings, defaults and values, for the readers in `env`,
`vinery --help`, `vinery config` and the keys of `vinery.toml`.

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
SWITCH: Final = ("on", "off")


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable. `default` is its value, or a text for readers where the code has it. `values` are
    the numbers, the words, or the schemes of URLs that it may have. The value of a secret may be in
    a file, which the variable with `_FILE` after its name names."""

    name: str
    meaning: str
    default: str = "none"
    values: range | tuple[str, ...] = ()
    is_secret: bool = False
    is_path: bool = False


def _number(name: str, meaning: str, default: int | str, least: int, most: int) -> Setting:
    return Setting(name, meaning, str(default), range(least, most + 1))


def _choice(name: str, meaning: str, *words: str) -> Setting:
    """The first word is the default."""
    return Setting(name, meaning, words[0], words)


def _secret(name: str, meaning: str, default: str = "none", *schemes: str) -> Setting:
    return Setting(name, meaning, default, schemes, is_secret=True)


def _days(kept: str, default: int) -> Setting:
    name = f"VINERY_RETENTION_{kept.replace(' ', '_').upper()}_DAYS"
    what = {"rows": "usage records"}.get(kept, kept)
    what = f"sums {what}" if what.startswith("by ") else what
    return _number(name, f"retention of {what} in days; 0 is for ever", default, 0, 36_500)


_HTTP: Final = ("http", "https")
_DAY_S: Final = 24 * 3600
_MILLION: Final = 1_000_000

SETTINGS: Final = (
    Setting(
        "VINERY_HOME",
        "folder of all state",
        "var in a clone, else the user's data folder",
        is_path=True,
    ),
    Setting("VINERY_HOST", "address to listen on", "127.0.0.1"),
    _number("VINERY_PORT", "port to listen on; 0 takes a free one", 8000, 0, 65_535),
    _choice(
        *("VINERY_SERVER", "uvicorn, or daphne for development or behind a proxy"),
        *("uvicorn", "daphne"),
    ),
    _number("VINERY_WEB_WORKERS", "number of web processes", 1, 1, 64),
    _number(
        "VINERY_HUNG_AFTER_S",
        "seconds after which a silent process is replaced; 0 for never",
        *(4, 0, 3600),
    ),
    _number(
        *("VINERY_DRAIN_S", "seconds that requests may still run when the server is stopped"),
        *(30, 0, 3600),
    ),
    _number(
        "VINERY_WEB_MEMORY_MB",
        "memory above which a web process is replaced; 0: any amount",
        "an eighth of the machine's, from 1024 to 4096",
        0,
        1 << 20,
    ),
    Setting(
        "VINERY_MODEL_MEMORY_MB",
        "memory for models: of the CPU, or of devices, such as CPU=8000,GPU=4000; 0: any amount",
        "80 % of the machine's for the CPU",
    ),
    _number(
        "VINERY_MODEL_IDLE_S",
        "seconds without a request after which a model sleeps, unless it has its own; 0 for never",
        *(0, 0, 366 * _DAY_S),
    ),
    _number(
        *("VINERY_MIN_AWAKE_S", "seconds before a model that woke may make room for others"),
        *(5, 0, 3600),
    ),
    _number(
        *("VINERY_WAKE_WAIT_S", "how long a request waits until its model is loaded"),
        *(60, 1, 3600),
    ),
    _choice("VINERY_AUTH", "on, or off to serve this machine without keys", *SWITCH),
    Setting(
        "VINERY_PUBLIC_URL",
        "URL that clients use, if a proxy is in front; https hardens cookies",
        values=_HTTP,
    ),
    _secret(
        "VINERY_METRICS_TOKEN",
        "bearer token for /metrics, which needs it with VINERY_PUBLIC_URL unless the client is on "
        "this machine",
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
    _choice(
        *("VINERY_REQUIRE_2FA", "off, staff or all: who must have a second factor"),
        *("off", "staff", "all"),
    ),
    Setting("VINERY_OIDC_ISSUER", "URL of an OpenID Connect issuer for sign-in"),
    Setting("VINERY_OIDC_CLIENT_ID", "the client's id at the issuer"),
    _secret("VINERY_OIDC_CLIENT_SECRET", "the client's secret at the issuer"),
    Setting("VINERY_OIDC_NAME", "label of the issuer's button", "single sign-on"),
    Setting("VINERY_OIDC_SCOPES", "requested scopes", "openid,profile,email"),
    _choice(
        "VINERY_OIDC_SIGN_UP", "on: sign-in through the issuer creates accounts", *SWITCH[::-1]
    ),
    _choice(
        "VINERY_OIDC_LINK_BY_EMAIL",
        "on: an address that the issuer has verified signs in to its account",
        *SWITCH[::-1],
    ),
    Setting("VINERY_OIDC_GROUPS_CLAIM", "claim that lists a user's groups"),
    Setting("VINERY_OIDC_ADMIN_GROUP", "group whose members are superusers"),
    Setting("VINERY_OIDC_ROLES", "group=role pairs, separated by commas"),
    Setting("VINERY_OIDC_ORGANIZATION", "organisation of new users", "the first one"),
    _secret(
        *("VINERY_EMAIL_URL", "smtp://user:password@host for STARTTLS, smtps:// for TLS"),
        *("no mail", "smtp", "smtps", "smtp+plain"),
    ),
    Setting("VINERY_EMAIL_FROM", "sender of e-mails", "vinery@ and the host"),
    _number("VINERY_MAX_CONNECTIONS", "connections of one web process", 100_000, 1, _MILLION),
    _number("VINERY_MAX_CONNECTIONS_PER_ADDRESS", "connections of one address", 2000, 1, _MILLION),
    _number("VINERY_MAX_BODY_MB", "largest request body", 64, 1, 4096),
    _number(
        *("VINERY_MAX_BODIES_MB", "bodies of all running requests; half of it for each key"),
        *(256, 1, _MILLION),
    ),
    _number("VINERY_BODY_TIMEOUT_S", "how long a request's body may take", 120, 1, _DAY_S),
    _number("VINERY_MAX_FORM_MB", "largest form or body of the management API", 1, 1, 1024),
    _choice(
        "VINERY_UNKNOWN_FIELDS",
        "ignore (and name in a header) or refuse: fields that the server does not know",
        *("ignore", "refuse"),
    ),
    _choice(
        "VINERY_HOSTED_FEATURES",
        "ignore (and name in a header) or refuse: store, and tools that only OpenAI hosts",
        *("ignore", "refuse"),
    ),
    _number(
        *("VINERY_WORK_PROCESSES", "worker processes of each web process"),
        "the cores, at least 2",
        1,
        256,
    ),
    _number("VINERY_WORK_TIME_S", "processor time of a step of reading a request", 5, 1, 600),
    _number("VINERY_WORK_MEMORY_MB", "memory of a step of reading a request", 1024, 64, 65_536),
    _number(
        "VINERY_WORK_QUEUE", "requests of a key that wait for a worker process", 2048, 1, 100_000
    ),
    _number("VINERY_WORK_WAIT_S", "how long a request waits for a worker process", 600, 1, 600),
    _number(
        "VINERY_MEDIA_FETCHES", "files that a web process fetches at the same time", 32, 1, 1024
    ),
    _number("VINERY_MEDIA_FETCHES_OF_KEY", "of them for one key", 8, 1, 1024),
    _number("VINERY_MEDIA_FETCHED_MB", "all files that one request names", 64, 1, 4096),
    _number(
        "VINERY_MEDIA_CACHE_MB",
        "fetched files that a web process keeps in memory; 0: none",
        *(64, 0, 65_536),
    ),
    _number("VINERY_MEDIA_CACHE_S", "how long they are kept, for the same project", 60, 0, _DAY_S),
    _number("VINERY_MEDIA_FRAMES", "frames of a video that a model sees", 32, 1, 256),
    _number("VINERY_MEDIA_DECODE_MS", "processor time that decodes one file", 1800, 100, 600_000),
    _number(
        "VINERY_PAGE_THREADS", "requests for pages that run at once in a web process", 4, 1, 256
    ),
    _number(
        *("VINERY_MIN_FREE_DISK_MB", "free disk space below which health reports degraded"),
        *(256, 0, _MILLION),
    ),
    _number("VINERY_REQUEST_TIMEOUT_S", "longest generation", 600, 1, _DAY_S),
    _number(
        *(
            "VINERY_QUARANTINE_S",
            "how long a request that ended two engines is refused; 0: it is not",
        ),
        *(_DAY_S, 0, 365 * _DAY_S),
    ),
    _choice(
        *("VINERY_LIMITS_WHEN_AWAY", "allow or refuse: requests while Redis is unavailable"),
        *("allow", "refuse"),
    ),
    Setting("VINERY_ALERT_AT", "percentages of quotas at which an alert is sent", "50,80,100"),
    Setting("VINERY_WEBHOOK_NETWORKS", "private networks that webhooks may call, also without TLS"),
    _days("rows", 30),
    _days("refusals", 30),
    _days("by minute", 7),
    _days("by hour", 365),
    _days("by day", 0),
    _days("alerts", 365),
    _number(
        *("VINERY_JOB_MEMORY_MB", "memory of a conversion, which fails above it"),
        "what is free at its start, less 1024",
        0,
        1 << 24,
    ),
    Setting(
        "VINERY_JOB_TORCH_INDEX",
        "package index with builds of torch for CPUs; none: that of pip",
        "PyTorch's own",
    ),
    _choice("VINERY_DOCS", "off turns off the pages under /docs/", *SWITCH),
    _choice(
        *("VINERY_LOG_LEVEL", "debug, info, warning or error"),
        *("info", "debug", "warning", "error"),
    ),
    _choice(
        *("VINERY_LOG_FORMAT", "text or json: lines on standard output and in files"),
        *("text", "json"),
    ),
    _number("VINERY_LOG_FILE_MB", "the size of a log file", 10, 1, 10_000),
    _number("VINERY_LOG_FILES", "how many log files each process and each model has", 5, 1, 100),
    _choice(
        *("VINERY_DEBUG", "on shows errors in the browser; on this machine only", *SWITCH[::-1])
    ),
    Setting(
        *("HF_ENDPOINT", "URL of the hub that models are pulled from"),
        *("https://huggingface.co", _HTTP),
    ),
    _secret("HF_TOKEN", "token for private and gated models of the hub"),
    _secret(
        *("DATABASE_URL", "PostgreSQL server", "a SQLite file in the home folder"),
        *("postgres", "postgresql", "sqlite"),
    ),
    _secret(
        *("REDIS_URL", "Redis server, for several hosts", "files in the home folder and memory"),
        *("redis", "rediss", "unix"),
    ),
    _secret(
        "VINERY_SECRET_KEY",
        "secret that signs sessions, for hosts that share a database",
        "generated in the home folder",
    ),
    _secret("VINERY_SECRET_KEY_FALLBACKS", "earlier keys, which still decrypt what they encrypted"),
    _secret(
        "VINERY_KEY_PEPPER_1",
        "secret under which API keys are hashed, for hosts that share a database",
        "generated in the home folder",
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


def named(name: str) -> Setting:
    """The setting of a variable. Raises KeyError."""
    return known()[key_of(name)]


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
        yield _number(limit.setting, f"limit of {limit.fields}", limit.default, 1, limit.most)


def _file_of(secret: Setting) -> Setting:
    name = f"{secret.name}{FILE_SUFFIX}"
    return Setting(name, f"file with {secret.name}", is_path=True)
