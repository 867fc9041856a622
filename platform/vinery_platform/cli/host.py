"""`vinery config`, `env`, `devices`, `reload` and `completion`: the settings, the first key, the
devices, the processes and the shells of this host. Only the last needs Django.
"""

import argparse
import asyncio
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from vinery_platform.cli import shape
from vinery_platform.cli.commands import COMMANDS, parser
from vinery_platform.config import config_file, env
from vinery_platform.config.home import Credentials, Home, RunningServer
from vinery_platform.config.setting_table import FILE_SUFFIX, SETTINGS
from vinery_platform.processes.heartbeats import RELOAD, RELOAD_NOTE
from vinery_serving.models import devices
from vinery_serving.models.devices import Device
from vinery_serving.node import device_probe

_RELOAD_POLL_S: Final = 0.1
_RELOAD_WITHIN_S: Final = 600.0


def add_config(parser: argparse.ArgumentParser) -> None:
    shape.add_switch(parser, "--path", "print the paths of the configuration files instead")
    shape.add_json(parser)


def run_config(arguments: argparse.Namespace) -> int:
    """Show each setting with its value and its source: the environment, a configuration file, or
    the default. Secrets are hidden."""
    if not arguments.path:
        shape.print_rows(list(_rows()), ("setting", "value", "source"), as_json=arguments.json)
    elif files := config_file.apply():
        print(*(file.path for file in files), sep="\n")
    else:
        paths = " or ".join(map(str, config_file.candidates()))
        shape.print_note(f"There is no configuration file. It would be {paths}.")
    return 0


def _rows() -> Iterator[dict[str, str]]:
    """One row for each setting of the table, then one for each other setting with a value."""
    found = {
        each.name: {
            "setting": each.name,
            "value": "(hidden)" if each.is_secret else value,
            "source": str(env.origin_of(each.name) or "environment"),
        }
        for each, value in config_file.set_settings()
    }
    for setting in SETTINGS:
        if setting.name in found:
            yield found.pop(setting.name)
        elif setting.name + FILE_SUFFIX not in found:
            is_home = setting.name == "VINERY_HOME"
            value = str(Home.from_env().path) if is_home else setting.default
            yield {"setting": setting.name, "value": value, "source": "default"}
    yield from found.values()


def run_env(_: argparse.Namespace) -> int:
    """Print lines for a shell, with the address of the server and the first key: eval
    "$(vinery env)". OpenAI's clients read these variables."""
    home = Home.from_env()
    known = Credentials.read(home.bootstrap_file)
    if known is None and not home.path.exists():
        raise home.missing()
    if known is None:
        raise shape.Failure(
            f"{home.bootstrap_file} was deleted, and with it the first key. Create another one: "
            "vinery key create --name NAME"
        )
    server = RunningServer.read(home)
    base_url = known.base_url if server is None else server.base_url
    print(f"export OPENAI_BASE_URL={shlex.quote(f'{base_url}/v1')}")
    print(f"export OPENAI_API_KEY={shlex.quote(known.api_key)}")
    return 0


# -- The devices of this machine

add_devices = shape.add_json


def run_devices(arguments: argparse.Namespace) -> int:
    """List the devices of this machine on which OpenVINO can run models. It looks for them now, and
    a running Vinery then knows them, too. Vinery need not run."""
    run_dir = Home.from_env().run
    with shape.failing_on(device_probe.ProbeFailed):
        found = asyncio.run(device_probe.find())
    with suppress(OSError):  # there is no home yet, or it is full
        # A file of another user could not be read by Vinery.
        if run_dir.stat().st_uid == os.getuid():
            devices.write(run_dir, found)
    rows = [_device_row(each, as_json=arguments.json) for each in found]
    shape.print_rows(rows, ("device", "name", "memory", "driver"), as_json=arguments.json)
    return 0


def _device_row(device: Device, *, as_json: bool) -> dict[str, Any]:
    row = {"device": device.name, "name": device.full_name, "driver": device.driver}
    if as_json:
        values = {"memory_bytes": device.memory_bytes, "properties": list(device.properties)}
        return row | values
    memory = device.memory_bytes
    return row | {"memory": None if memory is None else f"{memory / 2**30:.1f} GiB"}


# -- New web processes. The supervisor of this home is asked by a signal: each new process takes the
# connections before the old one stops to, and the old one ends with its last request.


def run_reload(_arguments: argparse.Namespace) -> int:
    """Let the `vinery up` of this home folder replace its web processes one after the other, for
    example to load new code of the same version. Each new process serves before the old one takes
    no more connections, and running requests finish. Engines, node and jobs go on. If a new process
    cannot answer requests, the old one goes on, and the exit status is 1."""
    home = Home.from_env()
    pid, before = home.supervisor_pid(), _reload_note(home)
    with suppress(ProcessLookupError):  # it has ended meanwhile
        if pid is not None:
            os.kill(pid, RELOAD)
            print(f"vinery: process {pid} replaces its web processes one after the other.")
    give_up_at_s = time.monotonic() + _RELOAD_WITHIN_S
    while (note := _reload_note(home)) == before:
        if pid is None or home.supervisor_pid() != pid:
            raise shape.Failure(f"`vinery up` does not run with the home folder {home.path}.")
        if time.monotonic() > give_up_at_s:
            raise shape.Failure("The web processes are not replaced yet: see `vinery logs`.")
        time.sleep(_RELOAD_POLL_S)
    if why_not := note.partition(" ")[2]:
        raise shape.Failure(f"{why_not}.")
    print("vinery: the new web processes serve. The old ones finish their requests.")
    return 0


def _reload_note(home: Home) -> str:
    with suppress(FileNotFoundError):
        return (home.run / RELOAD_NOTE).read_text(encoding="utf-8")
    return ""


# -- Completion in shells. zsh reads the script of bash.


def run_completion(_arguments: argparse.Namespace) -> int:
    """Print a script that completes commands and options in bash and zsh. bash reads it from
    ~/.local/share/bash-completion/completions/vinery, zsh by: source <(vinery completion)."""
    shape.load_django()
    lines = (f"    '{at}') echo '{words}' ;;" for at, words in _completed(parser(*COMMANDS), ""))
    script = Path(__file__).with_name("completion.sh").read_text(encoding="utf-8")
    print(script.replace("    # words", "\n".join(lines)), end="")
    return 0


def _completed(command: argparse.ArgumentParser, at: str) -> Iterator[tuple[str, str]]:
    """Yield the words before the cursor, without `vinery`, and those that may follow."""
    options = [text for each in command._actions for text in each.option_strings if text[1] == "-"]
    more = [each for each in command._actions if isinstance(each, argparse._SubParsersAction)]
    yield at, " ".join([*(name for each in more for name in each.choices), *options])
    for name, child in (pair for each in more for pair in each.choices.items()):
        yield from _completed(child, f"{at} {name}")
