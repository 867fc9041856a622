"""`python -m vinery_platform.cli.warm`: the process from which the supervisor forks services.

The process has imported what services need, and runs nothing: no thread, event loop or connection
would survive a fork. Daphne's module makes an event loop, so forks import that module themselves.
"""

import logging
import os
import sys
from importlib import import_module
from typing import Final

from vinery_platform.cli import main
from vinery_platform.cli.shape import importing, start_django
from vinery_platform.config import env
from vinery_platform.config.env import SettingError
from vinery_platform.processes import heartbeats
from vinery_platform.processes import log_setup as logs
from vinery_serving.processes import forks, parent

log = logging.getLogger("vinery_platform.cli.warm")

# Each fork needs these, too: 0.5 MB of its own, unless it shares them.
_OF_EACH: Final = (
    "vinery_platform.cli.commands",
    "vinery_platform.cli.services",
    "django.db.models.sql.compiler",
)


def run() -> int:
    """Fork until the supervisor ends. Returns the exit status, in a fork the one of its command."""
    parent.end_with(int(os.environ.pop(parent.PARENT_VARIABLE)))
    os.environ.pop(heartbeats.SUCCESSOR_VARIABLE, None)
    try:
        _import_all()
    except Exception as error:
        logs.begin(os.environ[logs.PROCESS_VARIABLE])
        is_defect = not isinstance(error, SettingError)
        log.critical("%s", error, exc_info=is_defect)
        return 1 if is_defect else 2
    if not (argv := forks.serve()):
        return 0
    sys.argv = argv[argv.index("-m") + 1 :]
    return main()


def _import_all() -> None:
    start_django()
    with importing():
        if env.choice("VINERY_SERVER") == "uvicorn":
            import_module("vinery_platform.processes.uvicorn_server")
        for name in ("vinery_platform.asgi", *_OF_EACH):
            import_module(name)


if __name__ == "__main__":
    sys.exit(run())
