"""`vinery host`: the hosts of an installation, and how further hosts join it.

`join` needs no home, and makes one. `admit` is for the relay, which knows no database.
"""

import argparse
import asyncio
import json
import re
import sys
from typing import Final

from django.conf import settings

from vinery_accounts.base.files import write_private
from vinery_platform.cli.resource import add_resource, only
from vinery_platform.cli.shape import Failure, add_command, failing_on
from vinery_platform.config import config_file, env, secret_files
from vinery_platform.config.home import Home
from vinery_platform.processes.listening import Address
from vinery_serving.models.host_resource import HOSTS
from vinery_serving.models.host_rows import Host

_GIVEN: Final = ("DATABASE_URL", "REDIS_URL")


def add_host(parser: argparse.ArgumentParser) -> None:
    about = "its name, or its id if others have its name"
    named = add_resource(parser, HOSTS, text=about, find=_named, see="vinery host list")
    actions = named.actions
    add_command(actions, "token", _token)
    join = add_command(actions, "join", _join)
    join.add_argument("address", metavar="ADDRESS", help="VINERY_HOST_ADDRESS of the other host")
    join.add_argument("--token", required=True, help="what `vinery host token` has printed there")
    join.set_defaults(needs_home=False)
    add_command(actions, "admit", _admit)


def _named(word: str) -> Host:
    is_id = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", word)
    return only(
        Host.objects.filter(**{"pk" if is_id else "name": word}),
        f"There is no host {word}. See: vinery host list",
        f"Several hosts are named {word}. Write the id of one: vinery host list --json",
    )


def _token(_: argparse.Namespace) -> str:
    """Print a token with which one host joins this installation within 15 minutes. The token gives
    all secrets of the installation: show it to nobody else."""
    from vinery_serving.cluster import admission, joining  # 60 ms

    with failing_on(joining.Refused):
        token = admission.make_token()
    return f"vinery host join {settings.VINERY_HOST_ADDRESS} --token {token}"


def _join(arguments: argparse.Namespace) -> str:
    """Make this host one of an installation. Its home gets the secrets, and the addresses of
    database and Redis. Then set VINERY_HOST_ADDRESS, and run `vinery up`."""
    from vinery_serving.cluster import authority, joining
    from vinery_serving.transport.relayed import Join

    home = Home.from_env()
    if secret_files.django_key(home) or secret_files.host_key(home):
        raise Failure(f"{home.path} has secrets already. Set VINERY_HOME to a new folder.")
    if (home.path / config_file.NAME).exists():  # before the token is used
        raise Failure(f"{home.path} has a {config_file.NAME} already: move it away.")
    address, own = Address.parse(arguments.address, "ADDRESS"), secret_files.new_secret()
    wish = Join(arguments.token, settings.VINERY_HOST_NAME, authority.host_fingerprint(own))
    home.create()
    with failing_on(joining.Refused):
        try:
            found = asyncio.run(joining.ask(address.host, address.port, wish))
        except OSError as error:
            why = error.strerror or str(error) or "no answer"
            raise Failure(
                f"No relay answers at {arguments.address}: {why}. Write VINERY_HOST_ADDRESS of a "
                "host where `vinery up` runs."
            ) from error
    texts = (f"{key} = {json.dumps(text)}\n" for key, text in found.settings.items())
    write_private(home.path / config_file.NAME, "".join(texts), replace=False)
    secret_files.create(home, {**found.secrets, secret_files.HOST_KEY_FILE: own})
    return f"{home.path} belongs to the installation. Set VINERY_HOST_ADDRESS, and run: vinery up"


def _admit(_: argparse.Namespace) -> int:
    """Answer a host that joins, from standard input to standard output. The relay runs this."""
    import msgspec

    from vinery_serving.cluster import admission
    from vinery_serving.transport.relayed import Join

    wish = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Join)
    answer = admission.admit(wish, {name.lower(): env.url(name) for name in _GIVEN})
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))
    return 0
