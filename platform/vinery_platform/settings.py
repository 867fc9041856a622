"""Django settings by theme. Values come from environment variables and configuration files.

Every default is safe in production. An invalid value raises `SettingError` with the variable's
name.
"""

import os
import sys
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from django.conf import global_settings

from vinery_platform import __version__
from vinery_platform.config import config_file, env, secret_files
from vinery_platform.config.home import MODELS, Home
from vinery_platform.config.home import TEMPLATES as TEMPLATE_FOLDER
from vinery_platform.config.servers import (
    database,
    issuer_from_env,
    mail_server_from_env,
    ray_address,
)
from vinery_platform.processes import log_setup as logs
from vinery_platform.processes.listening import Address
from vinery_platform.processes.memory import model_memory_from_env
from vinery_serving.core import field_limits
from vinery_serving.core.tasks import Endpoint

# Commands have done so; other programs import only this module.
config_file.apply()

# -- Folders --------------------------------------------------------------------------

HOME = Home.from_env()
VINERY_HOME = HOME.path
VINERY_RUN_DIR = HOME.run
VINERY_CACHE_DIR = HOME.cache
VINERY_USAGE_DIR = HOME.usage
VINERY_MIN_FREE_DISK_BYTES = 2**20 * env.integer("VINERY_MIN_FREE_DISK_MB")
VINERY_MODELS_DIR = MODELS
VINERY_PULLED_DIR = HOME.models
VINERY_LOGITS_PROCESSORS = env.words("VINERY_LOGITS_PROCESSORS")

# -- Hub ------------------------------------------------------------------------------

# The hub's client reads these from the environment, here and in jobs. Wrong ones stop the start.
# huggingface_hub has another name for a file with the token.
env.url("HF_ENDPOINT")
env.secret("HF_TOKEN")
if _token_file := env.text("HF_TOKEN_FILE"):
    os.environ["HF_TOKEN_PATH"] = _token_file

# -- Listening ------------------------------------------------------------------------

VINERY_ADDRESS = Address.from_env()
env.choice("VINERY_SERVER")  # a wrong one stops the start
# Clients see the fingerprint as `system_fingerprint`. It changes when answers may change.
VINERY_VERSION = __version__
VINERY_FINGERPRINT = "vinery-" + ".".join(__version__.split(".")[:2])
VINERY_PUBLIC_URL = env.url("VINERY_PUBLIC_URL")
VINERY_TRUSTED_PROXIES = env.networks("VINERY_TRUSTED_PROXIES") or [
    ip_network("127.0.0.0/8"),
    ip_network("::1"),
]
# Each web process counts its own connections. Descriptors limit them, too.
VINERY_MAX_CONNECTIONS = env.integer("VINERY_MAX_CONNECTIONS")
VINERY_MAX_CONNECTIONS_PER_ADDRESS = env.integer("VINERY_MAX_CONNECTIONS_PER_ADDRESS")
VINERY_MAX_BODY_BYTES = 2**20 * env.integer("VINERY_MAX_BODY_MB")
VINERY_MAX_BODIES_BYTES = 2**20 * env.integer("VINERY_MAX_BODIES_MB")
VINERY_BODY_TIMEOUT_S = env.integer("VINERY_BODY_TIMEOUT_S")
VINERY_MAX_FORM_BYTES = 2**20 * env.integer("VINERY_MAX_FORM_MB")
VINERY_PAGE_THREADS = env.integer("VINERY_PAGE_THREADS")
# How large the fields of a request may be: docs/parameters.md has the table.
VINERY_FIELD_LIMITS = {
    limit.name: env.integer(limit.setting) for limit in field_limits.FIELD_LIMITS
}
field_limits.configure(VINERY_FIELD_LIMITS)
VINERY_UNKNOWN_FIELDS = env.choice("VINERY_UNKNOWN_FIELDS")
VINERY_HOSTED_FEATURES = env.choice("VINERY_HOSTED_FEATURES")
VINERY_REQUEST_TIMEOUT_S = env.integer("VINERY_REQUEST_TIMEOUT_S")
VINERY_QUARANTINE_S = env.integer("VINERY_QUARANTINE_S")

# -- Worker processes, which read large requests ----------------------------------------

VINERY_WORK_PROCESSES = env.integer("VINERY_WORK_PROCESSES", max(2, os.cpu_count() or 1))
VINERY_WORK_TIME_S = env.integer("VINERY_WORK_TIME_S")
VINERY_WORK_MEMORY_BYTES = 2**20 * env.integer("VINERY_WORK_MEMORY_MB")
VINERY_WORK_QUEUE = env.integer("VINERY_WORK_QUEUE")
VINERY_WORK_WAIT_S = env.integer("VINERY_WORK_WAIT_S")

# -- Pictures, videos and documents of requests ------------------------------------------

# Arguments of `FetchLimits` and `DecodeLimits` in vinery_serving/media.
VINERY_FETCH_LIMITS: dict[str, Any] = {
    "max_running": env.integer("VINERY_MEDIA_FETCHES"),
    "max_running_of_key": env.integer("VINERY_MEDIA_FETCHES_OF_KEY"),
    "max_bytes_of_request": 2**20 * env.integer("VINERY_MEDIA_FETCHED_MB"),
    "cache_bytes": 2**20 * env.integer("VINERY_MEDIA_CACHE_MB"),
    "cache_s": env.integer("VINERY_MEDIA_CACHE_S"),
}
VINERY_DECODE_LIMITS: dict[str, Any] = {
    "max_frames": env.integer("VINERY_MEDIA_FRAMES"),
    "cpu_s": env.integer("VINERY_MEDIA_DECODE_MS") / 1000,
}

_PUBLIC = urlsplit(VINERY_PUBLIC_URL)
_IS_BEHIND_TLS = _PUBLIC.scheme == "https"

# -- Secrets and access ---------------------------------------------------------------

SECRET_KEY = secret_files.django_key(HOME)
SECRET_KEY_FALLBACKS = secret_files.old_django_keys(HOME)
VINERY_SOCKET_SECRET = secret_files.socket_secret(HOME)
VINERY_AUTHORITY_SECRETS = secret_files.authority_secrets(HOME)
VINERY_HOST_ADDRESS = env.text("VINERY_HOST_ADDRESS")
VINERY_HOST_KEY = secret_files.host_key(HOME)
VINERY_KEY_PEPPERS = secret_files.key_peppers(HOME)
VINERY_METRICS_TOKEN = env.token("VINERY_METRICS_TOKEN")
VINERY_AUTH_ENABLED = env.on_off("VINERY_AUTH")
DEBUG = env.on_off("VINERY_DEBUG")


def _allowed_hosts() -> list[str]:
    """Hosts that a `Host` header may name: no others, so that DNS rebinding does not work."""
    if named := env.words("VINERY_ALLOWED_HOSTS"):
        return named
    if VINERY_ADDRESS.is_wildcard and not _PUBLIC.hostname:
        return ["*"]
    own = {"localhost", "127.0.0.1", "[::1]", VINERY_ADDRESS.host, _PUBLIC.hostname or ""}
    return sorted(own - {"", "0.0.0.0", "::"})


ALLOWED_HOSTS = _allowed_hosts()
CSRF_FAILURE_VIEW = "vinery_platform.web.errors.csrf_failure"
CSRF_TRUSTED_ORIGINS = [f"{_PUBLIC.scheme}://{_PUBLIC.netloc}"] if VINERY_PUBLIC_URL else []

# -- TLS, which ends in a proxy before this server ---------------------------------------

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _IS_BEHIND_TLS
SECURE_SSL_REDIRECT = _IS_BEHIND_TLS
# The proxy must set this header, and remove it from clients' requests.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _IS_BEHIND_TLS else None
# Probes bypass the proxy, and API clients lose their body at a redirect.
SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|startupz|metrics)$", r"^(v1|v2|v3|api)/"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if _IS_BEHIND_TLS else 0
# HSTS for subdomains and preload lists is the decision of the domain's owner.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

# -- Django ---------------------------------------------------------------------------

INSTALLED_APPS = [
    # Daphne's command is the development server. Other processes would import Twisted: 26 MB and a
    # quarter of the start time (measured with Django 5.2, Twisted 26).
    *(["daphne"] if sys.argv[1:2] == ["runserver"] else []),
    "vinery_platform.web.apps.VineryConfig",
    "vinery_platform.web.apps.VineryAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "django.contrib.staticfiles",
    "vinery_platform.web.apps.VineryRestConfig",
    "drf_spectacular",
    "drf_spectacular_sidecar",  # the files of Swagger UI and Redoc
    "channels",
    "allauth",
    "vinery_accounts.apps.AccountConfig",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.usersessions",
    "vinery_accounts",
    "vinery_serving.models",
    "vinery_serving.media.tables",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "vinery_platform.web.middleware.StaticFilesMiddleware",
    "vinery_platform.web.middleware.site_middleware",
    "vinery_accounts.signin.sessions.SignedSessionMiddleware",
    "vinery_platform.web.middleware.HostCheckMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "vinery_accounts.base.actors.actor_middleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "vinery_accounts.signin.middleware.sign_in",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "vinery_platform.urls"
ASGI_APPLICATION = "vinery_platform.asgi.application"
DATA_UPLOAD_MAX_MEMORY_SIZE = VINERY_MAX_FORM_BYTES
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = "vinery_platform.config.formats"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [TEMPLATE_FOLDER],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "vinery_accounts.console.menu.frame",
            ],
            "builtins": ["vinery_accounts.console.menu"],
        },
    }
]

# -- Users ------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}Validator", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarity", {}),
        ("MinimumLength", {"min_length": 12}),
        ("CommonPassword", {}),
        ("NumericPassword", {}),
    )
]
# Django calls the backend at each request with a session: see `vinery_accounts/signin/people.py`.
AUTHENTICATION_BACKENDS = ["vinery_accounts.signin.people.PeopleBackend"]
SESSION_SERIALIZER = "vinery_accounts.signin.sessions.EncryptedSerializer"
PASSWORD_HASHERS = [
    "vinery_accounts.signin.sessions.PatientHasher",
    *global_settings.PASSWORD_HASHERS[1:],  # of hashes that other software made
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
VINERY_REQUIRE_2FA = env.choice("VINERY_REQUIRE_2FA")
VINERY_OIDC = issuer_from_env()

# Settings of django-allauth. There is no sign-up: administrators create accounts.
ACCOUNT_ADAPTER = "vinery_accounts.signin.people.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_LOGIN_ON_PASSWORD_RESET = True  # after the second factor, if the account has one
# There are no pages for codes by mail, which allauth offers to users with a verified address.
ACCOUNT_REAUTHENTICATION_METHODS = {"password", "mfa"}
# The tokens of `vinery_accounts/resources/users.py`, too.
ACCOUNT_PASSWORD_RESET_TOKEN_GENERATOR = "django.contrib.auth.tokens.PasswordResetTokenGenerator"
ACCOUNT_RATE_LIMITS = {
    "login_failed": "10/m/ip,5/5m/key",
    "login_failed_on_known_device": "5/5m/key",
}
SOCIALACCOUNT_ADAPTER = "vinery_accounts.signin.oidc_adapter.IssuerAdapter"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
MFA_ADAPTER = "vinery_accounts.signin.factors.FactorAdapter"
MFA_FORMS = {
    "activate_totp": "vinery_accounts.signin.factors.ActivateForm",
    "add_webauthn": "vinery_accounts.signin.passkeys.AddForm",
    "authenticate": "vinery_accounts.signin.factors.AuthenticateForm",
    "reauthenticate": "vinery_accounts.signin.factors.ReauthenticateForm",
}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Vinery"
# The clocks of phones may be half a minute off, and users type slowly.
MFA_TOTP_TOLERANCE = 1

# -- E-mail -----------------------------------------------------------------------------

_MAIL = mail_server_from_env()
VINERY_HAS_EMAIL = bool(_MAIL)
# A link in an e-mail needs a known host name, not the one that a request claims.
VINERY_PASSWORD_RESET = VINERY_HAS_EMAIL and (bool(VINERY_PUBLIC_URL) or "*" not in ALLOWED_HOSTS)
EMAIL_TIMEOUT = 10
globals().update(_MAIL or {"EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend"})
DEFAULT_FROM_EMAIL = env.text("VINERY_EMAIL_FROM", f"vinery@{_PUBLIC.hostname or 'localhost'}")

# -- Data -------------------------------------------------------------------------------

DATABASES = {"default": database(HOME)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
VINERY_REDIS_URL = env.url("REDIS_URL")
# The cache counts failed sign-ins and used codes for all processes. It is in the database, which
# every installation has and sign-in needs anyway. Nothing reads the cache often.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "vinery_cache",
        # High, so that an attacker who tries many names does not evict other counts.
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [VINERY_REDIS_URL]},
    }
    if VINERY_REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}

# -- Limits -------------------------------------------------------------------------------

# Without Redis, each of several web processes counts its own share of a limit.
VINERY_WEB_WORKERS = env.integer("VINERY_WEB_WORKERS")
VINERY_HUNG_AFTER_S = env.integer("VINERY_HUNG_AFTER_S")
# Read by the processes of jobs, and checked here. 0: what is free when one starts.
env.integer("VINERY_JOB_MEMORY_MB", 0)
env.networks("VINERY_JOB_NETWORKS")
VINERY_LIMITS_WHEN_AWAY = env.choice("VINERY_LIMITS_WHEN_AWAY")
# The endpoints that a key may be restricted to; `accounts` does not import `serving`.
VINERY_KEY_ENDPOINTS = tuple(map(str, Endpoint))

# -- Models -------------------------------------------------------------------------------

VINERY_HOST_NAME = env.host_name("VINERY_HOST_NAME")
VINERY_HOST_LABELS = env.labels("VINERY_HOST_LABELS")
VINERY_MODEL_MEMORY = model_memory_from_env()  # bytes by device
VINERY_MODEL_IDLE_S = env.integer("VINERY_MODEL_IDLE_S")
VINERY_MIN_AWAKE_S = env.integer("VINERY_MIN_AWAKE_S")
VINERY_RAY_ADDRESS = ray_address(DATABASES["default"])  # empty: the leading node places
VINERY_WAKE_WAIT_S = env.integer("VINERY_WAKE_WAIT_S")

# -- Alerts -------------------------------------------------------------------------------

VINERY_ALERT_AT = env.percentages("VINERY_ALERT_AT")
VINERY_WEBHOOK_NETWORKS = env.networks("VINERY_WEBHOOK_NETWORKS")

# -- Static files -------------------------------------------------------------------------

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True  # files are served from their packages
# File names have no hash, so browsers must revalidate soon after an upgrade.
WHITENOISE_MAX_AGE = 300
WHITENOISE_ALLOW_ALL_ORIGINS = False

# -- The pages under /docs/, which show both APIs ------------------------------------------

VINERY_DOCS = env.on_off("VINERY_DOCS")

# -- Management API -----------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "vinery_accounts.api.authentication.KeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["vinery_accounts.api.authentication.MayManage"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["vinery_accounts.api.wire.Json"],
    "DEFAULT_SCHEMA_CLASS": "vinery_accounts.api.schema.Schema",
    "EXCEPTION_HANDLER": "vinery_accounts.api.wire.handle",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Vinery management API",
    "DESCRIPTION": "Users, keys, limits, alerts, usage, refusals, quarantine, served models, "
    "devices and the audit log.",
    "VERSION": __version__,
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SCHEMA_PATH_PREFIX": "/api",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "vinery_accounts.api.schema.complete",
    ],
    "ENUM_NAME_OVERRIDES": {
        "Role": "vinery_accounts.models.Role",
        "KeyScope": "vinery_accounts.models.Scope",
        "LimitScope": "vinery_accounts.models.LimitScope",
        "LimitMetric": "vinery_accounts.base.limit_table.METRIC_CHOICES",
        "LimitWindow": "vinery_accounts.base.limit_table.WINDOW_CHOICES",
        "WeekStart": "vinery_accounts.base.limit_table.WEEKDAY_CHOICES",
        "DeliveryState": "vinery_accounts.models.DeliveryState",
        "KeyState": "vinery_accounts.models.keys.STATES",
        "Break": "vinery_accounts.access.audit.Break",
        "ServedModelState": "vinery_serving.models.engine_status.ShownState",
        "MediaScope": "vinery_serving.media.tables.resource.SCOPES",
        "MediaDenialReason": "vinery_serving.media.tables.models.DENIAL_REASONS",
    },
}

# -- Jobs: a message only wakes a worker; the job itself is a row in the database ---------------

CELERY_BROKER_URL = VINERY_REDIS_URL or "memory://localhost"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "jobs"
CELERY_TIMEZONE = TIME_ZONE
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
# Remote control would be another queue to poll, and nothing uses it.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_BEAT_SCHEDULE = {
    name.replace("_", "-"): {"task": f"vinery_accounts.tasks.{name}", "schedule": interval_s}
    for name, interval_s in {
        "recover_usage": 60.0,
        "check_quotas": 60.0,
        "sweep_deliveries": 60.0,
        "sweep_mailed_views": 3600.0,
        "delete_old_usage": 3600.0,
        "write_spans": 3600.0,
        "delete_old_captures": 60.0,
        "sweep_stored": 60.0,
        "delete_old_quarantine": 3600.0,
        "delete_old_alerts": 3600.0,
        "delete_expired_sessions": 3600.0,
    }.items()
}

# -- Retention of usage and alerts in days; 0 keeps them for ever ---------------------------------

VINERY_RETENTION_DAYS = {
    table: env.integer(f"VINERY_RETENTION_{table.upper()}_DAYS")
    for table in ("rows", "refusals", "by_minute", "by_hour", "by_day")
}
VINERY_RETENTION_ALERTS_DAYS = env.integer("VINERY_RETENTION_ALERTS_DAYS")

# -- Logs ---------------------------------------------------------------------------------

VINERY_LOG_DIR = HOME.logs
VINERY_LOG = logs.LogSettings.from_env()
VINERY_LOG_LEVEL = VINERY_LOG.level
LOGGING = logs.logging_config(VINERY_LOG_LEVEL)
