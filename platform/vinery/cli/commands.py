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
from importlib import import_module
from typing import Final

from vinery import __version__
from vinery.cli.shape import Failure, load_django, require_home
from vinery.config import config_file
from vinery.config.env import SettingError
from vinery.config.setting_table import SETTINGS
from vinery.process import logs
from vinery_accounts.base.actors import Actor, acting_as
from vinery_accounts.base.names import escaped

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
