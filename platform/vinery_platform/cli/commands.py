"""The table of all commands, and how errors become a line and an exit status.

Only the module of the command that runs is loaded, so the supervisor starts fast.
"""

import argparse
import getpass
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

from vinery_accounts.base.names import escaped
from vinery_platform import __version__
from vinery_platform.cli import shape
from vinery_platform.config import config_file
from vinery_platform.config.env import SettingError
from vinery_platform.config.setting_table import SETTINGS
from vinery_platform.processes import log_setup as logs

_ABOUT_SETTINGS: Final = """\
settings are environment variables, or keys of vinery.toml in the home folder or in the user's
configuration folder: in lower case, without VINERY_. `vinery config` shows those in force.
"""
_ABOUT_SECRETS: Final = """
A setting with a secret may also name a file: add _FILE to the name."""

COMMANDS: Final = {
    "up": "start everything on this machine",
    "ready": "report whether the server is ready",
    "logs": "show and follow the logs of all processes",
    "reload": "replace the web processes without losing a request",
    "status": "show what runs, its addresses, processes, models and stores",
    "doctor": "check machine, drivers, home, settings and stores, and name cures",
    "env": "print address and key of this home for a shell",
    "completion": "print a script that completes commands in bash and zsh",
    "wait": "show what models do until they are ready",
    "config": "show the settings in force and where they are set",
    "model": "add, load, unload and list models",
    "alias": "give models other names, and divide requests between them",
    "job": "see, pause, resume and cancel long work on models",
    "convert": "list, make and remove the environments of conversions",
    "host": "list hosts on one database, drain, resume and remove them",
    "catalog": "list ready-made models that can be pulled by name",
    "devices": "list the devices of this machine on which models can run",
    "import-ovms": "serve what an OpenVINO Model Server serves",
    "media": "allow hosts and folders of media, test them, see what was refused",
    "key": "create, list, pause, rotate and revoke API keys",
    "usage": "show, export and verify usage",
    "demo-data": "make up a month of usage for trials, or remove it",
    "requests": "see and stop the requests that run now",
    "refusals": "see why limits refused requests",
    "quarantine": "see and release requests that ended two engines",
    "limit": "set, list and remove limits and quotas",
    "weight": "set the weights of tokens in budgets, or their prices",
    "currency": "set the currency, and with it prices and costs",
    "alerts": "see and test alerts of quotas and keys, manage webhooks",
    "user": "create, list, deactivate and remove users, give them roles",
    "project": "create, list, deactivate and remove projects",
    "organization": "create, list, deactivate and remove organisations",
    "audit": "read and verify the log of all changes",
    "capture": "see and delete captured texts of requests",
    "stored": "see and delete stored responses, conversations and chats",
    "admin": "a new password, or a new secret key",
    "backup": "write all state to one file, while Vinery runs",
    "restore": "put the state of a backup into an empty home folder",
    "prepare": "migrate, collect static files, create the first admin and key",
    "web": "run one web process (started by `up`)",
    "node": "run the engines of this host (started by `up`)",
    "jobs": "run background jobs (started by `up`)",
    "relay": "let other hosts reach the engines of this host (started by `up`)",
    "agent": "let Ray place models on hosts (started by `up`)",
    "ray-node": "start Ray on this host, with the memory of its devices",
}
# Modules with several commands. `add_NAME` adds the arguments of a command, `run_NAME` runs it.
_MODULES: Final = {
    command: module
    for module, commands in {
        "resource": "organization",
        "accounts": "project user key limit weight currency admin",
        "records": "requests refusals quarantine capture stored audit alerts",
        "usage": "demo-data",
        "models": "alias job",
        "host": "config env devices reload completion",
        "files": "catalog convert",
        "services": "prepare web node jobs relay",
        "hosts": "host",
        "backup": "restore",
        "ray": "agent ray-node",
    }.items()
    for command in commands.split()
}
# These commands log to files also without `up`.
_SERVERS: Final = frozenset({"web", "node", "jobs", "relay", "agent"})
_WITHOUT_DJANGO: Final = frozenset(
    {"up", "ready", "logs", "reload", "env", "config", "catalog", "convert", "devices", "relay"}
)
# Commands that load Django and look for a home themselves.
_LOADING: Final = frozenset(
    {*("status", "doctor", "completion", "backup", "restore", "prepare", "ray-node"), *_SERVERS}
)


def module_of(name: str) -> str:
    return f"vinery_platform.cli.{_MODULES.get(name, name.replace('-', '_'))}"


def parser(*loaded: str) -> argparse.ArgumentParser:
    """Return the command line of the `loaded` commands, by default the list of all commands and
    settings."""
    root = argparse.ArgumentParser(
        prog="vinery",
        description="Serve OpenVINO models to OpenAI clients.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [name for name in COMMANDS if name in loaded]
    if not known:
        meanings = {each.name: f"{each.meaning} (default: {each.default})" for each in SETTINGS}
        root.epilog = f"{_ABOUT_SETTINGS}\n{shape.glossary(meanings)}\n{_ABOUT_SECRETS}"
    root.add_argument(
        "--config", metavar="FILE", help="a configuration file; also after the command"
    )
    root.add_argument("--version", action="version", version=f"vinery {__version__}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in known or COMMANDS:
        command = commands.add_parser(name, help=COMMANDS[name])
        if known:
            own, module = name.replace("-", "_"), import_module(module_of(name))
            if run := getattr(module, f"run_{own}", None):
                command.description = shape.description_of(run)
                command.set_defaults(run=run, flags={})
            # `cli.resource` adds the commands that follow from a declaration.
            if add := getattr(module, f"add_{own}", getattr(module, "add_declared", None)):
                add(command)
    return root


def run(argv: Sequence[str] | None) -> int:
    """Run one command. Returns 0, 1 for a failure, 2 for an invalid setting or argument."""
    # Files are private, also those that libraries and children create.
    os.umask(0o077)
    needs_django, arguments = False, argparse.Namespace()
    try:
        words = _without_config(sys.argv[1:] if argv is None else list(argv))
        name = words[0] if words and words[0] in COMMANDS else ""
        if words and not name and (near := get_close_matches(words[0], COMMANDS, 1)):
            raise SettingError(f"There is no command {words[0]}. Did you mean {near[0]}?")
        needs_django = name in COMMANDS.keys() - _WITHOUT_DJANGO - _LOADING
        if needs_django:
            shape.load_django()
        arguments = parser(name).parse_args(words)
        if name != "doctor":  # which reports a wrong file among others
            config_file.apply()
        if process := os.environ.get(logs.PROCESS_VARIABLE) or (name if name in _SERVERS else ""):
            logs.begin(process)
        if needs_django and getattr(arguments, "needs_home", True):
            shape.require_home()
        with nullcontext() if name in _WITHOUT_DJANGO else _acting():
            result: int | str = arguments.run(arguments)
        if isinstance(result, str):
            shape.print_line(result)
        sys.stdout.flush()
    except SettingError as error:
        return _print_error(str(error), 2)
    except shape.Failure as error:
        return _print_error(str(error), 1)
    except BrokenPipeError:  # standard output is read no more, such as by `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        text = _message_of(error, getattr(arguments, "flags", {}), of_rules=needs_django)
        return _print_error(text, 1)
    return 0 if isinstance(result, str) else result


def _message_of(error: Exception, flags: Mapping[str, str], *, of_rules: bool) -> str:
    """Return what the user reads about an error of the database, or of a rule of rows. Raises any
    other error again. `flags` are the options of columns."""
    # Only commands that have loaded Django end here, so these imports cost nothing.
    from django.core.exceptions import ValidationError
    from django.db import Error as DatabaseError

    if isinstance(error, DatabaseError):
        reason = " ".join(str(error).split())
        return f"The database cannot be used: {reason}. Is it prepared? See: vinery prepare --help"
    if isinstance(error, ValidationError):
        return _messages(error, flags)
    from vinery_accounts.resources.base import Conflict

    if not of_rules or not isinstance(error, Conflict | ValueError):
        raise error
    return str(error)


def _messages(error: Any, flags: Mapping[str, str]) -> str:
    """Return all messages, each with the name of its option unless the text has the name."""
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    about_the_row = dict.fromkeys(("__all__", "is_active", "is_superuser", "role"), "")
    names = {"username": "name", **about_the_row, **flags}
    return " ".join(
        message if not flag or flag.strip("-") in message.lower() else f"{flag}: {message}"
        for column, messages in error.message_dict.items()
        for flag in [names.get(column, column)]
        for message in messages
    )


def _without_config(words: list[str]) -> list[str]:
    """The words without `--config FILE`, which becomes VINERY_CONFIG: settings are read before
    most arguments are known. Raises `SettingError` without a file."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        name, separator, value = word.partition("=")
        if name != "--config":
            kept.append(word)
        elif separator or (value := next(left, "")):
            os.environ[config_file.VARIABLE] = value
        else:
            raise SettingError("--config needs a file: vinery --config FILE COMMAND")
    return kept


def _acting() -> AbstractContextManager[None]:
    """Name the system user as the actor in the audit log."""
    from vinery_accounts.base.actors import Actor, acting_as

    def actor() -> Actor:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):  # a container's user may have no name
            name = str(os.getuid())
        return Actor(None, f"command line ({name})")

    return acting_as(actor)


def _print_error(text: str, status: int) -> int:
    line = escaped(text, keep="\n")
    print(f"vinery: {line}", file=sys.stderr)
    logs.note_printed(line, logging.ERROR)
    return status
