"""`vinery host`: the hosts that share the database."""

import argparse

from vinery_accounts.resources.base import EVERYTHING
from vinery_platform.cli.joining import add_joining
from vinery_platform.cli.resource import RowCommands, add_list, finder
from vinery_platform.cli.shape import subcommands
from vinery_serving.models.host_resource import HOSTS


def add_host(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser)
    add_list(actions, HOSTS)
    host = finder(HOSTS.rows(EVERYTHING), "name", "host list")
    RowCommands(actions, HOSTS, host, see="vinery host list").add_all()
    add_joining(actions)
