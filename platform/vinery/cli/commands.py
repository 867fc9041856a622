"""All commands, and how an error of one becomes a line and an exit status.

Each module of this package adds its own parser. Modules import Django only when their
command runs, so `--help` and the supervisor start fast.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Sequence

from accounts.base.actors import Actor, acting_as
from accounts.base.names import escaped
from vinery import __version__
from vinery.cli import (
    admin,
    alerts,
    audit,
    capture,
    jobs,
    key,
    limit,
    model,
    node,
    organization,
    prepare,
    project,
    ready,
    refusals,
    replay,
    up,
    usage,
    user,
    web,
    weight,
)
from vinery.cli.shape import Failure
from vinery.config.env import SettingError

_EPILOG = """\
settings are environment variables:
  VINERY_HOME         folder of all state (default: var in the repository)
  VINERY_HOST         address to listen on (default: 127.0.0.1)
  VINERY_PORT         port to listen on; 0 takes a free one (default: 8000)
  VINERY_SERVER       uvicorn or daphne (default: uvicorn)
  VINERY_WEB_WORKERS  number of web processes (default: 1)
  VINERY_AUTH         on, or off to serve this machine without keys (default: on)
  VINERY_PUBLIC_URL   URL that clients use, if a proxy is in front; https hardens cookies
  VINERY_TRUSTED_PROXIES
                      networks of such proxies, whose X-Forwarded-For is believed
                      (default: this machine)
  VINERY_ALLOWED_HOSTS  names that browsers may use, with commas (default: as it listens)
  VINERY_REQUIRE_2FA  off, staff or all: who must have a second factor (default: off)
  VINERY_OIDC_ISSUER, VINERY_OIDC_CLIENT_ID, VINERY_OIDC_CLIENT_SECRET
                      sign-in through an OpenID Connect issuer
  VINERY_OIDC_NAME, VINERY_OIDC_SCOPES
                      how its button calls it, and what it is asked for
  VINERY_OIDC_SIGN_UP, VINERY_OIDC_LINK_BY_EMAIL
                      on: it makes accounts; a verified address opens its account
  VINERY_OIDC_GROUPS_CLAIM, VINERY_OIDC_ADMIN_GROUP, VINERY_OIDC_ROLES, VINERY_OIDC_ORGANIZATION
                      superusers, and group=role pairs in an organisation, by its groups
  VINERY_EMAIL_URL, VINERY_EMAIL_FROM
                      smtp://user:password@host for STARTTLS, smtps:// for TLS
  VINERY_MAX_BODY_MB  largest request body (default: 64)
  VINERY_MIN_FREE_DISK_MB
                      room on disks under which health says degraded (default: 256)
  VINERY_REQUEST_TIMEOUT_S  longest generation (default: 600)
  VINERY_LIMITS_WHEN_AWAY
                      refuse, allow or share: requests while Redis is away (default: share)
  VINERY_LIMITS_QUEUE_S
                      how long a request may wait for a limit of its key (default: 0)
  VINERY_ALERT_AT     percentages of quotas at which people are told (default: 50,80,100)
  VINERY_REMIND_DAYS  days before a key expires, or is to be rotated, at which its owner is told
                      (default: 1,7)
  VINERY_WEBHOOK_NETWORKS
                      private networks that webhooks may call, also without TLS (default: none)
  VINERY_RETENTION_ROWS_DAYS, VINERY_RETENTION_REFUSALS_DAYS,
  VINERY_RETENTION_BY_MINUTE_DAYS, VINERY_RETENTION_BY_HOUR_DAYS, VINERY_RETENTION_BY_DAY_DAYS
                      how long usage is kept; 0 is for ever (default: 30, 30, 7, 365, 0)
  VINERY_RETENTION_ALERTS_DAYS
                      how long alerts and reminders are kept; 0 is for ever (default: 365)
  VINERY_SYSFS        where the kernel's energy counters are (default: /sys)
  VINERY_LOG_LEVEL    debug, info, warning or error (default: info)
  VINERY_DEBUG        on shows errors in the browser; on this machine only (default: off)
  DATABASE_URL        PostgreSQL instead of the SQLite file in the home folder
  REDIS_URL           Redis instead of files and memory, for several hosts
  VINERY_SECRET_KEY, VINERY_KEY_PEPPER_1
                      secrets for hosts that share a database (default: made in the home)
  VINERY_SECRET_KEY_FALLBACKS
                      keys from before, which still open what they closed (default: none)
Those with secrets in them may also be files: add _FILE to the name.
"""


_FOR_PEOPLE = (
    *(
        up,
        ready,
        model,
        key,
        usage,
        refusals,
        limit,
        weight,
        alerts,
        user,
        project,
        organization,
        audit,
        capture,
        replay,
    ),
    admin,
)
_FOR_HOSTS = (prepare, web, node, jobs)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="vinery",
        description="Serve OpenVINO models to OpenAI clients.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"vinery {__version__}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (*_FOR_PEOPLE, *_FOR_HOSTS):
        module.add_to(commands)
    return root


def run(argv: Sequence[str] | None) -> int:
    """Run one command. Returns 0, 1 when it failed, 2 when a setting or argument must change."""
    arguments = parser().parse_args(argv)
    try:
        with acting_as(_actor):
            status: int = arguments.run(arguments)
    except SettingError as error:
        return _say(error, 2)
    except Failure as error:
        return _say(error, 1)
    except Exception as error:
        # Django is imported by the commands that need it, which are those that end here.
        from django.db import Error as DatabaseError

        if not isinstance(error, DatabaseError):
            raise
        reason = " ".join(str(error).split())
        advice = "Is it prepared? See: vinery prepare --help"
        return _say(Failure(f"The database cannot be used: {reason}. {advice}"), 1)
    return status


def _actor() -> Actor:
    """Whoever may run commands here, by the name that the system has for them."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have none
        name = str(os.getuid())
    return Actor(None, f"command line ({name})")


def _say(error: Exception, status: int) -> int:
    line = escaped(str(error), keep="\n")
    print(f"vinery: {line}", file=sys.stderr)
    return status
