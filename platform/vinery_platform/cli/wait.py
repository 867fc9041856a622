"""`vinery wait`: the progress of the models, line by line, until each is ready or has failed.

`vinery up` runs this command once the web process answers.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterable
from typing import Final

from vinery_accounts.base.names import escaped
from vinery_platform.cli.ready import command_words, health, local_url
from vinery_platform.cli.shape import Failure, add_number, add_switch, print_line
from vinery_platform.config.home import Credentials, Home
from vinery_platform.processes import log_setup as logs
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.models import ServedModel

_POLL_S: Final = 0.2
_FIRST_PROGRESS_AFTER_S: Final = 3.0
_WITH_REASON: Final = frozenset(
    {ShownState.UNLOADED, ShownState.WAITING, ShownState.RETRYING, ShownState.FAILED}
)
_SETTLED: Final = frozenset({ShownState.READY, ShownState.ASLEEP, ShownState.FAILED})


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model (default: all loaded)")
    add_number(parser, "--timeout", 600, "how long to wait at most", "SECONDS")
    add_switch(
        parser, "--example", "in a terminal, also print a request to try, with the first key"
    )


def run_wait(arguments: argparse.Namespace) -> int:
    """Show what models do until they are ready. The exit status is 1 if one failed or is not ready
    in time."""
    if not (arguments.names or _loaded([])):
        are_served, command = ServedModel.objects.exists(), command_words()
        what = "loaded. Load one" if are_served else "served yet. Add one"
        words = "load NAME" if are_served else "add FOLDER --name NAME"
        _print(f"No model is {what}: {command} model {words}")
        return 0
    shown: dict[str, str] = {}
    began_s = time.monotonic()
    report_after_s = _FIRST_PROGRESS_AFTER_S
    wants_example = arguments.example and sys.stdout.isatty() and not logs.is_json()
    known = Credentials.read(Home.from_env().bootstrap_file) if wants_example else None
    while True:
        models = _loaded(arguments.names)
        waited_s = time.monotonic() - began_s
        for model in models:
            if shown.get(model.name) != (line := _line_of(model)):
                _print(line)
            elif waited_s >= report_after_s and model.shown_state not in _SETTLED:
                _print(f"{line} ({waited_s:.0f} s)")
            shown[model.name] = line
        if waited_s >= report_after_s:
            report_after_s *= 2
        states = {model.name: str(model.shown_state) for model in models}
        ready = [name for name, state in states.items() if state == ShownState.READY]
        if known and ready and (health(local_url()) or {}).get("is_ready"):
            line = escaped(curl_line(local_url(), known.api_key, ready[0]))
            logs.show(f"a request to try:\n\n  {line}\n")  # the key is for no log
            known = None
        waiting = [name for name, state in states.items() if state not in _SETTLED]
        if not waiting and not (known and ready):
            return int(ShownState.FAILED in states.values())
        if waited_s >= arguments.timeout:
            see = f"It goes on; see: {command_words()} model list"
            for name in waiting:
                _print(f"{name}: not ready after {arguments.timeout} s. {see}")
            return 1
        time.sleep(_POLL_S)


def _line_of(model: ServedModel) -> str:
    reason = " ".join(model.status.reason.split()) if model.shown_state in _WITH_REASON else ""
    return f"{model.name}: {model.state_text}{reason and f': {reason}'}"


def _loaded(names: Iterable[str]) -> list[ServedModel]:
    """The models with these names, or all that should be loaded. Raises `Failure`."""
    models = {model.name: model for model in ServedModel.objects.select_related("engine")}
    for name in names:
        if name not in models:
            raise Failure(f"No model is served as {name}. See: vinery model list")
        if not models[name].is_loaded:
            raise Failure(f"{name} is not loaded. Load it: vinery model load {name}")
    return [models[name] for name in names] or [each for each in models.values() if each.is_loaded]


def _print(line: str) -> None:
    """Print a line; as a process of `vinery up`, also log it."""
    if logs.has_begun():
        logs.announce(escaped(line))
    else:
        print_line(line)
        sys.stdout.flush()


def curl_line(base_url: str, api_key: str, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    words = (
        *("curl", f"{base_url}/v1/chat/completions"),
        *("-H", f"Authorization: Bearer {api_key}"),
        *("-H", "Content-Type: application/json"),
        *("-d", json.dumps(body)),
    )
    return shlex.join(words)
