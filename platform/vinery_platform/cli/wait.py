"""`vinery wait`: the progress of the models, line by line, until each is ready or has failed.

`vinery up` runs this command once the web process answers.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from django.utils import timezone

from vinery_accounts.base.names import escaped
from vinery_platform.cli.greeting import command_words
from vinery_platform.cli.ready import Readiness, local_url, models_for, readiness
from vinery_platform.cli.shape import Failure, add_number, add_switch, print_line
from vinery_platform.config.home import Home
from vinery_platform.config.notes import Credentials
from vinery_platform.processes import log_setup as logs
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.models import ServedModel

_POLL_S: Final = 0.2
_FIRST_PROGRESS_AFTER_S: Final = 3.0
# How long an example waits until the server would answer it.
_EXAMPLE_WITHIN_S: Final = 30.0
_WITH_REASON: Final = frozenset(
    {ShownState.UNLOADED, ShownState.WAITING, ShownState.RETRYING, ShownState.FAILED}
)
_SETTLED: Final = frozenset({ShownState.READY, ShownState.ASLEEP, ShownState.FAILED})


T = TypeVar("T")


class Progress:
    """The lines about one model. Times are in seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._words = ""  # of the last state that a line was about
        self._began_at_s: float | None = None  # when it began to load
        self._report_after_s = _FIRST_PROGRESS_AFTER_S

    def lines(
        self, state: str, words: str, *, reason: str, age_s: float, now_s: float
    ) -> Iterator[str]:
        """Yield new lines. `words` describe the state; `age_s`: the time since it began."""
        if reason and state in _WITH_REASON:
            words += f": {reason}"
        is_new, self._words, age_s = words != self._words, words, max(age_s, 0.0)
        if state not in _SETTLED and self._began_at_s is None:
            self._began_at_s = now_s - age_s
        waited_s = 0.0 if self._began_at_s is None else now_s - self._began_at_s
        if is_new:
            if state == ShownState.READY and self._began_at_s is not None:
                words += f" after {max(waited_s - age_s, 0.0):.0f} s"
            yield f"{self._name}: {words}"
        elif state not in _SETTLED and waited_s >= self._report_after_s:
            yield f"{self._name}: {words} ({waited_s:.0f} s)"
            self._report_after_s = max(2 * self._report_after_s, waited_s)


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
    progress: dict[str, Progress] = {}
    deadline_s = time.monotonic() + arguments.timeout
    has_example = arguments.example and sys.stdout.isatty() and not logs.is_json()
    while True:
        models = _loaded(arguments.names)
        for model in models:
            _report(model, progress.setdefault(model.name, Progress(model.name)))
        states = {model.name: str(model.shown_state) for model in models}
        if has_example and ShownState.READY in states.values():
            has_example = False
            _print_example()
        if _SETTLED.issuperset(states.values()):
            return int(ShownState.FAILED in states.values())
        if time.monotonic() >= deadline_s:
            see = f"It goes on; see: {command_words()} model list"
            for name in (name for name, state in states.items() if state not in _SETTLED):
                _print(f"{name}: not ready after {arguments.timeout} s. {see}")
            return 1
        time.sleep(_POLL_S)


def _report(model: ServedModel, progress: Progress) -> None:
    status = model.status
    age_s = (timezone.now() - status.changed_at).total_seconds() if status.changed_at else 0.0
    reason = " ".join(status.reason.split())
    for line in progress.lines(
        *(model.shown_state, model.state_text), reason=reason, age_s=age_s, now_s=time.monotonic()
    ):
        _print(line)


def _loaded(names: Iterable[str]) -> list[ServedModel]:
    """The models with these names, or all that should be loaded. Raises `Failure`."""
    models = {model.name: model for model in ServedModel.objects.select_related("engine")}
    for name in names:
        if name not in models:
            raise Failure(f"No model is served as {name}. See: vinery model list")
        if not models[name].is_loaded:
            raise Failure(f"{name} is not loaded. Load it: vinery model load {name}")
    return [models[name] for name in names] or [each for each in models.values() if each.is_loaded]


def _print_example() -> None:
    """Print a request that works, unless the first key is gone or may use no model."""
    known = Credentials.read(Home.from_env().bootstrap_file)
    base_url = local_url()
    if known is None or not _within(lambda: readiness(base_url) is Readiness.READY or None):
        return
    if models := _within(lambda: models_for(known.api_key, base_url)):
        line = escaped(curl_line(base_url, known.api_key, models[0]))
        logs.show(f"a request to try:\n\n  {line}\n")  # the key is for no log


def _print(line: str) -> None:
    """Print a line; as a process of `vinery up`, also log it."""
    if logs.has_begun():
        logs.announce(escaped(line))
    else:
        print_line(line)
        sys.stdout.flush()


def _within(ask: Callable[[], T | None]) -> T | None:
    """The first answer, or None when the time is over."""
    deadline_s = time.monotonic() + _EXAMPLE_WITHIN_S
    while (answer := ask()) is None and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return answer


def curl_line(base_url: str, api_key: str, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    words = (
        *("curl", f"{base_url}/v1/chat/completions"),
        *("-H", f"Authorization: Bearer {api_key}"),
        *("-H", "Content-Type: application/json"),
        *("-d", json.dumps(body)),
    )
    return shlex.join(words)
