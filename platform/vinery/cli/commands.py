"""The table of all commands, and how errors become a line and an exit status.

Only the module of the command that runs is loaded, so the supervisor starts fast.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from vinery import __version__
from vinery.cli.shape import Failure, create_home, load_django
from vinery.config.env import SettingError
from vinery_accounts.base.actors import Actor, acting_as
from vinery_accounts.base.names import escaped

_EPILOG = """\
settings are environment variables:
  VINERY_HOME         folder of all state (default: var in the repository)
  VINERY_HOST         address to listen on (default: 127.0.0.1)
  VINERY_PORT         port to listen on; 0 takes a free one (default: 8000)
  VINERY_SERVER       uvicorn or daphne (default: uvicorn)
  VINERY_WEB_WORKERS  number of web processes (default: 1)
  VINERY_HUNG_AFTER_S seconds after which a silent process is replaced; 0 for never (default: 4)
  VINERY_WEB_MEMORY_MB
                      memory above which a web process is replaced; 0: any amount (default: an
                      eighth of the machine's, from 1024 to 4096)
  VINERY_AUTH         on, or off to serve this machine without keys (default: on)
  VINERY_PUBLIC_URL   URL that clients use, if a proxy is in front; https hardens cookies
  VINERY_METRICS_TOKEN
                      bearer token for /metrics, which needs it with VINERY_PUBLIC_URL unless the
                      client is on this machine (default: none)
  VINERY_TRUSTED_PROXIES
                      networks of trusted proxies, whose X-Forwarded-For is used
                      (default: this machine)
  VINERY_ALLOWED_HOSTS  host names that browsers may use, separated by commas
  VINERY_REQUIRE_2FA  off, staff or all: who must have a second factor (default: off)
  VINERY_OIDC_ISSUER, VINERY_OIDC_CLIENT_ID, VINERY_OIDC_CLIENT_SECRET
                      sign-in through an OpenID Connect issuer
  VINERY_OIDC_NAME, VINERY_OIDC_SCOPES
                      the label of its button, and the requested scopes
  VINERY_OIDC_SIGN_UP, VINERY_OIDC_LINK_BY_EMAIL
                      on: sign-in creates accounts; a verified address signs in to its account
  VINERY_OIDC_GROUPS_CLAIM, VINERY_OIDC_ADMIN_GROUP, VINERY_OIDC_ROLES, VINERY_OIDC_ORGANIZATION
                      superusers, and group=role pairs in an organisation, by its groups
  VINERY_EMAIL_URL, VINERY_EMAIL_FROM
                      smtp://user:password@host for STARTTLS, smtps:// for TLS
  VINERY_MAX_CONNECTIONS, VINERY_MAX_CONNECTIONS_PER_ADDRESS
                      connections of one web process, and of one address (default: 100000, 2000)
  VINERY_MAX_BODY_MB  largest request body (default: 64)
  VINERY_MAX_BODIES_MB
                      bodies of all running requests; half of it for each key (default: 256)
  VINERY_BODY_TIMEOUT_S  how long a request's body may take (default: 120)
  VINERY_MAX_FORM_MB  largest form or body of the management API (default: 1)
  VINERY_WORK_PROCESSES
                      worker processes of each web process (default: the cores, at least 2)
  VINERY_WORK_TIME_S, VINERY_WORK_MEMORY_MB
                      processor time and memory of a step of reading a request (default: 5, 1024)
  VINERY_WORK_QUEUE, VINERY_WORK_WAIT_S
                      requests of a key that wait for a worker process, and for how long
                      (default: 512, 30)
  VINERY_PAGE_THREADS
                      requests for pages that run at once in a web process (default: 4)
  VINERY_MIN_FREE_DISK_MB
                      free disk space below which health reports degraded (default: 256)
  VINERY_REQUEST_TIMEOUT_S  longest generation (default: 600)
  VINERY_QUARANTINE_S how long a request that ended two engines is refused; 0: it is not
                      (default: 86400)
  VINERY_LIMITS_WHEN_AWAY
                      refuse, allow or share: requests while Redis is unavailable (default: share)
  VINERY_LIMITS_QUEUE_S
                      how long a request may wait for a limit of its key (default: 0)
  VINERY_ALERT_AT     percentages of quotas at which an alert is sent (default: 50,80,100)
  VINERY_REMIND_DAYS  days before a key expires or its rotation is due, when its owner is
                      reminded (default: 1,7)
  VINERY_WEBHOOK_NETWORKS
                      private networks that webhooks may call, also without TLS (default: none)
  VINERY_RETENTION_ROWS_DAYS, VINERY_RETENTION_REFUSALS_DAYS,
  VINERY_RETENTION_BY_MINUTE_DAYS, VINERY_RETENTION_BY_HOUR_DAYS, VINERY_RETENTION_BY_DAY_DAYS
                      retention of usage; 0 is for ever (default: 30, 30, 7, 365, 0)
  VINERY_RETENTION_ALERTS_DAYS
                      retention of alerts and reminders; 0 is for ever (default: 365)
  VINERY_SYSFS        where the kernel's energy counters are (default: /sys)
  VINERY_LOG_LEVEL    debug, info, warning or error (default: info)
  VINERY_DEBUG        on shows errors in the browser; on this machine only (default: off)
  DATABASE_URL        PostgreSQL instead of the SQLite file in the home folder
  REDIS_URL           Redis instead of files and memory, for several hosts
  VINERY_SECRET_KEY, VINERY_KEY_PEPPER_1
                      secrets for hosts that share a database (default: generated in the home)
  VINERY_SECRET_KEY_FALLBACKS
                      earlier keys, which still decrypt what they encrypted (default: none)
A setting with a secret may also name a file: add _FILE to the name.
"""

COMMANDS: Final = {
    "up": "start everything on this machine",
    "ready": "report whether the server is ready",
    "reload": "replace the web processes without losing a request",
    "model": "add, load, unload and list models",
    "devices": "list the devices of this machine on which models can run",
    "key": "create, list, pause, rotate and revoke API keys",
    "usage": "show, export and verify usage",
    "refusals": "see why limits refused requests",
    "quarantine": "see and release requests that ended two engines",
    "limit": "set, list and remove limits and quotas",
    "weight": "set the weights of tokens in budgets",
    "alerts": "see and test alerts of quotas and keys, manage webhooks",
    "user": "create, list, deactivate and remove users, give them roles",
    "project": "create, list, deactivate and remove projects",
    "organization": "create, list, deactivate and remove organisations",
    "audit": "read and verify the log of all changes",
    "capture": "see and delete captured texts of requests",
    "replay": "send a captured request again, and compare",
    "admin": "a new password, or a new secret key",
    "prepare": "migrate, collect static files, create the first admin and key",
    "web": "run one web process (started by `up`)",
    "node": "run the engines of this host (started by `up`)",
    "jobs": "run background jobs (started by `up`)",
}
# The descriptions of commands that start Django themselves, if they need it.
_PROCESSES: Final = {
    "up": "Prepare the home folder, start web, node and jobs processes, and keep them running. "
    "Ctrl-C or SIGTERM ends all of them; a second Ctrl-C kills them.",
    "ready": "Ask the server on VINERY_HOST, VINERY_PORT whether a model has generated a token "
    "lately. The exit status is 0 if it has, and 1 if not.",
    "reload": "Let the `vinery up` of this home folder replace its web processes one after the "
    "other, for example to load new code of the same version. Each new process serves before the "
    "old one takes no more connections, and running requests finish. Engines, node and jobs go on.",
    "devices": "List the devices of this machine on which OpenVINO can run models. It looks for "
    "them now, and a running Vinery then knows them, too. Vinery need not run.",
    "prepare": "Create or upgrade the home folder and the database. `vinery up` does this itself; "
    "hosts that run single processes need it once after an upgrade.",
    "web": "Serve the APIs, the console and the admin site on VINERY_HOST, VINERY_PORT.",
    "node": "Watch which models should be loaded here, and run an engine for each.",
    "jobs": "Run background jobs and periodic tasks from Redis, or from the home folder.",
}
_NEED_DJANGO: Final = COMMANDS.keys() - _PROCESSES.keys() - {"admin"}


def parser(*loaded: str) -> argparse.ArgumentParser:
    """Return the command line, with the arguments of the `loaded` commands."""
    root = argparse.ArgumentParser(
        prog="vinery",
        description="Serve OpenVINO models to OpenAI clients.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"vinery {__version__}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name in loaded:
            module = import_module(f"vinery.cli.{name}")
            if name in _PROCESSES:
                command.description = _PROCESSES[name]
                command.set_defaults(run=module.run)
            if hasattr(module, "add_to"):
                module.add_to(command)
    return root


def run(argv: Sequence[str] | None) -> int:
    """Run one command. Returns 0, 1 for a failure, 2 for an invalid setting or argument."""
    # Files are private, also those that libraries and children create.
    os.umask(0o077)
    words = sys.argv[1:] if argv is None else list(argv)
    name = words[0] if words and words[0] in COMMANDS else ""
    try:
        if name in _NEED_DJANGO:
            load_django()
        arguments = parser(name).parse_args(words)
        if name in _NEED_DJANGO:
            create_home()
        with acting_as(_actor):
            status: int = arguments.run(arguments)
    except SettingError as error:
        return _print_error(error, 2)
    except Failure as error:
        return _print_error(error, 1)
    except Exception as error:
        # Only commands that have loaded Django end here, so this import costs nothing.
        from django.db import Error as DatabaseError

        if not isinstance(error, DatabaseError):
            raise
        reason = " ".join(str(error).split())
        advice = "Is it prepared? See: vinery prepare --help"
        return _print_error(Failure(f"The database cannot be used: {reason}. {advice}"), 1)
    return status


def _actor() -> Actor:
    """Return the system user as the actor of the audit log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        name = str(os.getuid())
    return Actor(None, f"command line ({name})")


def _print_error(error: Exception, status: int) -> int:
    line = escaped(str(error), keep="\n")
    print(f"vinery: {line}", file=sys.stderr)
    return status
