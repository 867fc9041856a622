"""`vinery logs`: show and follow the logs of the processes of this home.

The command reads files alone: no running server, no database and no right to write is needed.
"""

import argparse
import heapq
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from vinery_platform.cli.shape import Failure, add_number, add_switch, period
from vinery_platform.config.home import Home
from vinery_serving.processes.logs.file import engine_name, log_paths, process_of
from vinery_serving.processes.logs.lines import LEVELS, LogEntry, time_text
from vinery_serving.processes.logs.reading import LogFollower

_POLL_S: Final = 0.25
_NODE: Final = "node"


def add_logs(parser: argparse.ArgumentParser) -> None:
    text = "the engine of this model, and the lines of the node about it"
    parser.add_argument("--model", metavar="NAME", help=text)
    text = "supervisor, prepare, web (all of them), web-1, node, jobs or engine"
    parser.add_argument("--process", metavar="NAME", help=text)
    add_lines_to(parser)


def add_lines_to(parser: argparse.ArgumentParser) -> None:
    """Which lines to show, of logs that are chosen otherwise."""
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with new lines until Ctrl-C"
    )
    add_number(parser, "-n --lines", 100, "how many of the last lines")
    parser.add_argument(
        "--level",
        choices=[level.lower() for level in LEVELS],
        default="debug",
        help="this level and above (default: %(default)s)",
    )
    text = "a time ago, such as 30s, 10m, 2h or 1d, or a time such as 2026-01-31T12:00"
    parser.add_argument("--since", type=since, metavar="TIME", help=text)
    add_switch(parser, "--json", "print a JSON object for each line")


def since(text: str, clock: Callable[[], float] = time.time) -> str:
    """Return a time as in log lines. Raises what argparse turns into a usage error."""
    try:
        with suppress(argparse.ArgumentTypeError):
            return time_text(clock() - period(text).total_seconds())
        moment = datetime.fromisoformat(text)
        return time_text((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time ago, such as 2h, nor a time, such as 2026-01-31T12:00"
        ) from None


class Logs:
    """The logs of a folder, of which the arguments select processes and lines."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self._folder = folder
        self._model, self._process = arguments.model, arguments.process
        self._levels = frozenset(LEVELS[LEVELS.index(arguments.level.upper()) :])
        self._since = arguments.since or ""
        self._followers: dict[Path, LogFollower] = {}

    def find(self, *, from_start: bool) -> None:
        """Begin to follow logs that are new. Raises OSError."""
        for path in log_paths(self._folder):
            if path not in self._followers and self._has_process(process_of(path)):
                self._followers[path] = LogFollower(path, from_start=from_start)

    @property
    def is_empty(self) -> bool:
        """Whether there is no log. The node also logs about models that have none."""
        processes = set(map(process_of, self._followers))
        return not processes - ({_NODE} if self._model is not None else set())

    def last(self, num_lines: int) -> list[LogEntry]:
        backwards = (self._backwards(follower) for follower in self._followers.values())
        merged = heapq.merge(*backwards, key=lambda entry: entry.time, reverse=True)
        return list(islice(merged, num_lines))[::-1]

    def new(self) -> list[LogEntry]:
        parts = (part for each in self._followers.values() for part in iter(each.read, []))
        found = (entry for part in parts for entry in part)
        return sorted(filter(self._has, found), key=lambda entry: entry.time)

    def _has_process(self, name: str) -> bool:
        if self._model is not None and name not in (engine_name(self._model), _NODE):
            return False
        wanted = self._process
        return wanted is None or name == wanted or name.startswith(f"{wanted}-")

    def _has(self, entry: LogEntry) -> bool:
        if entry.level not in self._levels or entry.time < self._since:
            return False
        if self._model is None or entry.process != _NODE:
            return True
        is_named = f"model={self._model}" in entry.message.split()
        return is_named or entry.fields.get("model") == self._model

    def _backwards(self, follower: LogFollower) -> Iterator[LogEntry]:
        for entry in follower.backwards():
            if entry.time < self._since:
                return
            if self._has(entry):
                yield entry


def run_logs(arguments: argparse.Namespace) -> int:
    """Show the last log lines of all processes of this home in the order of their times. It needs
    no running server. The files are in the folder logs of the home."""
    folder = Home.from_env().logs
    logs = Logs(folder, arguments)
    try:
        logs.find(from_start=False)
        entries = logs.last(arguments.lines)
        if logs.is_empty and not entries and not arguments.follow:
            raise Failure(_why_none(folder, arguments))
        _print(entries, as_json=arguments.json)
        while arguments.follow:
            time.sleep(_POLL_S)
            logs.find(from_start=True)
            _print(logs.new(), as_json=arguments.json)
    except FileNotFoundError:
        raise Failure(_why_none(folder, arguments)) from None
    except PermissionError:
        raise Failure(
            f"The logs in {folder} cannot be read. Use the user that runs the server."
        ) from None
    except KeyboardInterrupt:
        pass
    return 0


def _why_none(folder: Path, arguments: argparse.Namespace) -> str:
    if not folder.is_dir():
        return (
            f"There are no logs in {folder}. Start the server with `vinery up`, or set "
            "VINERY_HOME to the home of the one that runs."
        )
    is_of_model = arguments.model is not None
    wanted = f"model {arguments.model}" if is_of_model else f"process {arguments.process}"
    names = ", ".join(map(process_of, log_paths(folder))) or "none"
    return (
        f"There is no log of the {wanted} in {folder}. There are: {names}. Engines log on the host "
        "that runs them."
    )


def _print(entries: Iterable[LogEntry], *, as_json: bool) -> None:
    for entry in entries:
        print(entry.json() if as_json else entry.text())
    sys.stdout.flush()
