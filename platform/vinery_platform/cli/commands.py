"""The table of all commands, and how errors become a line and an exit status.

Only the module of the command that runs is loaded, so the supervisor starts fast.
"""

import argparse
import getpass
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Final

from vinery_accounts.base.names import escaped
from vinery_platform import __version__
from vinery_platform.cli.shape import Failure, load_django, require_home
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
    "wait": "show what models do until they are ready",
    "config": "show the settings in force and where they are set",
    "model": "add, load, unload and list models",
    "alias": "give models other names, and divide requests between them",
    "job": "see, pause, resume and cancel long work on models",
    "convert": "list, make and remove the environments of conversions",
    "catalog": "list ready-made models that can be pulled by name",
    "devices": "list the devices of this machine on which models can run",
    "import-ovms": "serve what an OpenVINO Model Server serves",
    "media": "allow hosts and folders of media, test them, see what was refused",
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
    "admin": "a new password, or a new secret key",
    "backup": "write all state to one file, while Vinery runs",
    "restore": "put the state of a backup into an empty home folder",
    "prepare": "migrate, collect static files, create the first admin and key",
    "web": "run one web process (started by `up`)",
    "node": "run the engines of this host (started by `up`)",
    "jobs": "run background jobs (started by `up`)",
}
# The descriptions of commands that start Django themselves, if they need it.
_PROCESSES: Final = {
    "up": "Prepare the home folder, start web, node and jobs processes, and keep them running. "
    "Ctrl-C or SIGTERM ends all of them; a second Ctrl-C kills them.",
    "ready": "Ask the server of this home whether a model has generated a token lately. If "
    "`vinery up` does not run with this home, it asks the one on VINERY_HOST, VINERY_PORT. The "
    "exit status is 0 if a model has, and 1 if not.",
    "logs": "Show the last log lines of all processes of this home in the order of their times. It "
    "needs no running server. The files are in the folder logs of the home.",
    "reload": "Let the `vinery up` of this home folder replace its web processes one after the "
    "other, for example to load new code of the same version. Each new process serves before the "
    "old one takes no more connections, and running requests finish. Engines, node and jobs go on.",
    "devices": "List the devices of this machine on which OpenVINO can run models. It looks for "
    "them now, and a running Vinery then knows them, too. Vinery need not run.",
    "convert": "Checkpoints are converted in environments of their own, one for each line of "
    "transformers that architectures need. A conversion makes the one that is missing. These "
    "commands list, make and remove them. Vinery need not run.",
    "status": "Show what runs with this home: addresses, versions, processes with their memory, "
    "models, database, Redis and usage journals. The exit status is 0 if a model is ready, 1 if "
    "none is, 2 if there is no home, and 3 if Vinery does not run.",
    "doctor": "Check OpenVINO, drivers, memory, disk, port, secrets, settings, database, Redis and "
    "clocks. Each warning and failure has its cure. The exit status is 1 if there is a failure. "
    "Needs no home and no running server.",
    "env": "Print lines for a shell, with the address of the server and the first key: eval "
    '"$(vinery env)". OpenAI\'s clients read these variables.',
    "config": "Show each setting with its value and its source: the environment, a configuration "
    "file, or the default. Secrets are hidden.",
    "backup": "Write the database, the secrets, usage that is not stored yet, the first "
    "credentials and vinery.toml of the home to one file. It works while Vinery runs.",
    "restore": "Check a whole backup, and put its state into this home folder, which must be "
    "empty. A vinery.toml in it stays.",
    "prepare": "Create or upgrade the home folder and the database. `vinery up` does this itself; "
    "hosts that run single processes need it once after an upgrade.",
    "web": "Serve the APIs, the console and the admin site on VINERY_HOST, VINERY_PORT.",
    "node": "Watch which models should be loaded here, and run an engine for each.",
    "jobs": "Run background jobs and periodic tasks from Redis, or from the home folder.",
}
_OF_ACCOUNTS: Final = ("organization", "project", "user", "key", "limit", "weight", "admin")
# Modules with several commands: `add_NAME` adds the arguments of each, `run_NAME` runs it.
_MODULES: Final = {
    **dict.fromkeys(_OF_ACCOUNTS, "accounts"),
    **dict.fromkeys(("refusals", "quarantine", "capture", "audit", "alerts"), "records"),
    **dict.fromkeys(("alias", "job"), "models"),
    **dict.fromkeys(("config", "env", "devices", "reload"), "host"),
    **dict.fromkeys(("catalog", "convert"), "files"),
    **dict.fromkeys(("node", "jobs"), "background"),
}
# They log to files also if they were started without `up`.
_SERVERS: Final = frozenset({"web", "node", "jobs"})
_NEED_DJANGO: Final = COMMANDS.keys() - _PROCESSES.keys() - {"catalog"}
_WITHOUT_DJANGO: Final = frozenset(
    {"up", "ready", "logs", "reload", "env", "config", "catalog", "convert", "devices"}
)


def module_of(name: str) -> str:
    """Return the module that has a command."""
    return f"vinery_platform.cli.{_MODULES.get(name, name.replace('-', '_'))}"


def parser(*loaded: str) -> argparse.ArgumentParser:
    """Return the command line, with the arguments of the `loaded` commands."""
    root = argparse.ArgumentParser(
        prog="vinery",
        description="Serve OpenVINO models to OpenAI clients.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument(
        "--config", metavar="FILE", help="a configuration file; also after the command"
    )
    root.add_argument("--version", action="version", version=f"vinery {__version__}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name in loaded:
            own = name.replace("-", "_")
            module = import_module(module_of(name))
            if name in _PROCESSES:
                command.description = _PROCESSES[name]
                command.set_defaults(run=getattr(module, f"run_{own}", None) or module.run)
            add = getattr(module, f"add_{own}", None) or getattr(module, "add_to", None)
            if add is not None:
                add(command)
    return root


def _epilog() -> str:
    """The table of settings."""
    width = max(len(setting.name) for setting in SETTINGS) + 4
    lines = shutil.get_terminal_size().columns - 2
    rows = [
        textwrap.fill(
            f"  {setting.name}".ljust(width) + f"{setting.meaning} (default: {setting.default})",
            width=max(lines, width + 30),
            subsequent_indent=" " * width,
        )
        for setting in SETTINGS
    ]
    return "\n".join((_ABOUT_SETTINGS, *rows, _ABOUT_SECRETS))


def run(argv: Sequence[str] | None) -> int:
    """Run one command. Returns 0, 1 for a failure, 2 for an invalid setting or argument."""
    # Files are private, also those that libraries and children create.
    os.umask(0o077)
    try:
        words = _without_config(sys.argv[1:] if argv is None else list(argv))
        name = words[0] if words and words[0] in COMMANDS else ""
        if name in _NEED_DJANGO:
            load_django()
        arguments = parser(name).parse_args(words)
        if name != "doctor":  # which reports a wrong file among others
            config_file.apply()
        if process := os.environ.get(logs.PROCESS_VARIABLE) or (name if name in _SERVERS else ""):
            logs.begin(process)
        if name in _NEED_DJANGO:
            require_home()
        with nullcontext() if name in _WITHOUT_DJANGO else _acting():
            status: int = arguments.run(arguments)
        sys.stdout.flush()
    except SettingError as error:
        return _print_error(error, 2)
    except Failure as error:
        return _print_error(error, 1)
    except BrokenPipeError:  # standard output is read no more, such as by `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        # Only commands that have loaded Django end here, so this import costs nothing.
        from django.db import Error as DatabaseError

        if not isinstance(error, DatabaseError):
            raise
        reason = " ".join(str(error).split())
        advice = "Is it prepared? See: vinery prepare --help"
        return _print_error(Failure(f"The database cannot be used: {reason}. {advice}"), 1)
    return status


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


def _print_error(error: Exception, status: int) -> int:
    line = escaped(str(error), keep="\n")
    print(f"vinery: {line}", file=sys.stderr)
    logs.note_printed(line, logging.ERROR)
    return status
