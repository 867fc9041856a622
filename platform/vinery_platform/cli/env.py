"""`vinery env`: the address and the first key of this home, as lines for a shell:

    eval "$(vinery env)"

OpenAI's clients read these variables by themselves.
"""

import argparse
import shlex
from typing import Final

from vinery_platform.cli.shape import Failure
from vinery_platform.config import credentials
from vinery_platform.config.home import Home
from vinery_platform.process import running_server

_NAMES: Final = ("OPENAI_BASE_URL", "OPENAI_API_KEY")


def run(_: argparse.Namespace) -> int:
    """Print `export` lines. Raises `Failure` without stored credentials, and `SettingError`."""
    home = Home.from_env()
    known = credentials.read(home.bootstrap_file)
    if known is None and not home.path.exists():
        raise home.missing()
    if known is None:
        raise Failure(
            f"{home.bootstrap_file} was deleted, and with it the first key. Create another one: "
            "vinery key create --name NAME"
        )
    server = running_server.read(home)
    base_url = known.base_url if server is None else server.base_url
    for name, value in zip(_NAMES, (f"{base_url}/v1", known.api_key), strict=True):
        print(f"export {name}={shlex.quote(value)}")
    return 0
