"""The table of all settings: names, meanings, defaults and values, for the readers in `env`,
`vinery --help`, `vinery config` and the keys of `vinery.toml`.

A key is the variable's name in lower case without `VINERY_`. The table has the keys.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from vinery_serving.core.field_limits import FIELD_LIMITS

_PREFIX: Final = "VINERY_"
# Variables that other programs have, too.
_WITHOUT_PREFIX: Final = frozenset(
    {"hf_endpoint", "hf_token", "database_url", "redis_url", "ray_address"}
)
_PEPPER: Final = re.compile(r"VINERY_KEY_PEPPER_[1-9]\d*")
FILE_SUFFIX: Final = "_FILE"
SWITCH: Final = ("on", "off")


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable. `default` is a value, or a text for readers where the code has the value.
    `values`: the allowed numbers, words, or schemes of URLs. The value of a secret may be in a
    file; the variable with `_FILE` at the end names the file."""

    name: str
    meaning: str
    default: str = "none"
    values: range | tuple[str, ...] = ()
    is_secret: bool = False
    is_path: bool = False


def _text(key: str, meaning: str, *more: Any, **fields: Any) -> Setting:
    """The setting of a key in `vinery.toml`, with the fields of `Setting` after its meaning."""
    name = key.upper() if key in _WITHOUT_PREFIX else f"{_PREFIX}{key.upper()}"
    return Setting(name, meaning, *more, **fields)


def _number(key: str, meaning: str, default: int | str, least: int, most: int) -> Setting:
    return _text(key, meaning, str(default), range(least, most + 1))


def _choice(key: str, meaning: str, *words: str) -> Setting:
    """The first word is the default."""
    return _text(key, meaning, words[0], words)


def _secret(key: str, meaning: str, default: str = "none", *schemes: str) -> Setting:
    return _text(key, meaning, default, schemes, is_secret=True)


def _days(kept: str, default: int) -> Setting:
    key = f"retention_{kept.replace(' ', '_')}_days"
    what = {"rows": "usage records"}.get(kept, kept)
    what = f"sums {what}" if what.startswith("by ") else what
    return _number(key, f"retention of {what} in days; 0 is for ever", default, 0, 36_500)


_HTTP: Final = ("http", "https")
_DAY_S: Final = 24 * 3600
_MILLION: Final = 1_000_000

SETTINGS: Final = (
    _text(
        "home", "folder of all state", "var in a clone, else the user's data folder", is_path=True
    ),
    _text("host", "address to listen on", "127.0.0.1"),
    _number("port", "port to listen on; 0 takes a free one", 8000, 0, 65_535),
    _text("host_name", "name of this host, of several on one database", "that of the machine"),
    _text("host_labels", "label=value pairs of this host, to which models can be pinned"),
    _text("host_address", "host:port at which other hosts reach the engines of this one"),
    _choice("server", "uvicorn, or daphne for development or behind a proxy", "uvicorn", "daphne"),
    _number("web_workers", "number of web processes", 1, 1, 64),
    _number(
        "hung_after_s", "seconds after which a silent process is replaced; 0 for never", 4, 0, 3600
    ),
    _choice(
        "confine",
        "auto, or required: refuse to start where the kernel cannot confine workers and engines",
        *("auto", "required"),
    ),
    _number(
        "drain_s", "seconds that requests may still run when the server is stopped", 30, 0, 3600
    ),
    _number(
        "web_memory_mb",
        "memory above which a web process is replaced; 0: any amount",
        *("an eighth of the machine's, from 1024 to 4096", 0, 1 << 20),
    ),
    _text(
        "model_memory_mb",
        "memory for models: of the CPU, or of devices, such as CPU=8000,GPU=4000; 0: any amount",
        "80 % of the machine's for the CPU",
    ),
    _number(
        "model_idle_s",
        "seconds without a request after which a model sleeps, unless it has its own; 0 for never",
        *(0, 0, 366 * _DAY_S),
    ),
    _text(
        "logits_processors",
        "import paths that the model option logits_processors may name, separated by commas",
        "none",
    ),
    _choice("placement", "local, or ray: Ray says on which host a model fits", "local", "ray"),
    _text("ray_address", "host:port of Ray's head, with VINERY_PLACEMENT=ray"),
    _number("min_awake_s", "seconds before a model that woke may make room for others", 5, 0, 3600),
    _number("wake_wait_s", "how long a request waits until its model is loaded", 60, 1, 3600),
    _choice("auth", "on, or off to serve this machine without keys", *SWITCH),
    _text(
        "public_url",
        "URL that clients use, if a proxy is in front; https hardens cookies",
        values=_HTTP,
    ),
    _secret(
        "metrics_token",
        "bearer token for /metrics, which needs it with VINERY_PUBLIC_URL unless the client is on "
        "this machine",
    ),
    _text(
        "trusted_proxies",
        "networks of trusted proxies, whose X-Forwarded-For is used",
        "this machine",
    ),
    _text(
        "allowed_hosts",
        "host names that browsers may use, separated by commas",
        "those of VINERY_HOST and VINERY_PUBLIC_URL",
    ),
    _choice(
        "require_2fa", "off, staff or all: who must have a second factor", "off", "staff", "all"
    ),
    _text("oidc_issuer", "URL of an OpenID Connect issuer for sign-in"),
    _text("oidc_client_id", "the client's id at the issuer"),
    _secret("oidc_client_secret", "the client's secret at the issuer"),
    _text("oidc_name", "label of the issuer's button", "single sign-on"),
    _text("oidc_scopes", "requested scopes", "openid,profile,email"),
    _choice("oidc_sign_up", "on: sign-in through the issuer creates accounts", *SWITCH[::-1]),
    _choice(
        "oidc_link_by_email",
        "on: an address that the issuer has verified signs in to its account",
        *SWITCH[::-1],
    ),
    _text("oidc_groups_claim", "claim that lists a user's groups"),
    _text("oidc_admin_group", "group whose members are superusers"),
    _text("oidc_roles", "group=role pairs, separated by commas"),
    _text("oidc_organization", "organisation of new users", "the first one"),
    _secret(
        *("email_url", "smtp://user:password@host for STARTTLS, smtps:// for TLS"),
        *("no mail", "smtp", "smtps", "smtp+plain"),
    ),
    _text("email_from", "sender of e-mails", "vinery@ and the host"),
    _number("max_connections", "connections of one web process", 100_000, 1, _MILLION),
    _number("max_connections_per_address", "connections of one address", 2000, 1, _MILLION),
    _number("max_body_mb", "largest request body", 64, 1, 4096),
    _number(
        "max_bodies_mb", "bodies of all running requests; half of it for each key", 256, 1, _MILLION
    ),
    _number("body_timeout_s", "how long a request's body may take", 120, 1, _DAY_S),
    _number("max_form_mb", "largest form or body of the management API", 1, 1, 1024),
    _choice(
        "unknown_fields",
        "ignore (and name in a header) or refuse: fields that the server does not know",
        *("ignore", "refuse"),
    ),
    _choice(
        "hosted_features",
        "ignore (and name in a header) or refuse: store, and tools that only OpenAI hosts",
        *("ignore", "refuse"),
    ),
    _number(
        "work_processes", "worker processes of each web process", "the cores, at least 2", 1, 256
    ),
    _number("work_time_s", "processor time of a step of reading a request", 5, 1, 600),
    _number("work_memory_mb", "memory of a step of reading a request", 1024, 64, 65_536),
    _number("work_queue", "requests of a key that wait for a worker process", 2048, 1, 100_000),
    _number("work_wait_s", "how long a request waits for a worker process", 600, 1, 600),
    _number("media_fetches", "files that a web process fetches at the same time", 32, 1, 1024),
    _number("media_fetches_of_key", "of them for one key", 8, 1, 1024),
    _number("media_fetched_mb", "all files that one request names", 64, 1, 4096),
    _number(
        "media_cache_mb", "fetched files that a web process keeps in memory; 0: none", 64, 0, 65_536
    ),
    _number("media_cache_s", "how long they are kept, for the same project", 60, 0, _DAY_S),
    _number("media_frames", "frames of a video that a model sees", 32, 1, 256),
    _number("media_decode_ms", "processor time that decodes one file", 1800, 100, 600_000),
    _number("page_threads", "requests for pages that run at once in a web process", 4, 1, 256),
    _number(
        "min_free_disk_mb", "free disk space below which health reports degraded", 256, 0, _MILLION
    ),
    _number("request_timeout_s", "longest generation", 600, 1, _DAY_S),
    _number(
        "quarantine_s",
        "how long a request that ended two engines is refused; 0: it is not",
        *(_DAY_S, 0, 365 * _DAY_S),
    ),
    _choice(
        *("limits_when_away", "allow or refuse: requests while Redis is unavailable"),
        *("allow", "refuse"),
    ),
    _text("alert_at", "percentages of quotas at which an alert is sent", "50,80,100"),
    _text("webhook_networks", "private networks that webhooks may call, also without TLS"),
    _days("rows", 30),
    _days("refusals", 30),
    _days("by minute", 7),
    _days("by hour", 365),
    _days("by day", 0),
    _days("alerts", 365),
    _number(
        "job_memory_mb",
        "memory of a conversion, which fails above it",
        *("what is free at its start, less 1024", 0, 1 << 24),
    ),
    _text("job_networks", "private networks from which models may be pulled"),
    _text(
        "job_torch_index",
        "package index with builds of torch for CPUs; none: that of pip",
        "PyTorch's own",
    ),
    _choice("docs", "off turns off the pages under /docs/", *SWITCH),
    _choice("log_level", "debug, info, warning or error", "info", "debug", "warning", "error"),
    _choice("log_format", "text or json: lines on standard output and in files", "text", "json"),
    _number("log_file_mb", "the size of a log file", 10, 1, 10_000),
    _number("log_files", "how many log files each process and each model has", 5, 1, 100),
    _choice("debug", "on shows errors in the browser; on this machine only", *SWITCH[::-1]),
    _text(
        "hf_endpoint", "URL of the hub that models are pulled from", "https://huggingface.co", _HTTP
    ),
    _secret("hf_token", "token for private and gated models of the hub"),
    _secret(
        *("database_url", "PostgreSQL server", "a SQLite file in the home folder"),
        *("postgres", "postgresql", "sqlite"),
    ),
    _secret(
        *("redis_url", "Redis server, for several hosts", "memory"), *("redis", "rediss", "unix")
    ),
    _secret(
        "secret_key",
        "secret that signs sessions, for hosts that share a database",
        "generated in the home folder",
    ),
    _secret("secret_key_fallbacks", "earlier keys, which still decrypt what they encrypted"),
    _secret(
        "key_pepper_1",
        "secret under which API keys are hashed, for hosts that share a database",
        "generated in the home folder",
    ),
)


def key_of(name: str) -> str:
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
        key, meaning = key_of(limit.setting), f"limit of {limit.fields}"
        yield _number(key, meaning, limit.default, 1, limit.most)


def _file_of(secret: Setting) -> Setting:
    name = f"{secret.name}{FILE_SUFFIX}"
    return Setting(name, f"file with {secret.name}", is_path=True)
