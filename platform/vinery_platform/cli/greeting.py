"""The text of `vinery up` once the web process answers: addresses, credentials, commands."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vinery_platform.config import config_file, env
from vinery_platform.config.home import Home, default_path
from vinery_platform.config.notes import Credentials, RunningServer
from vinery_platform.processes import log_setup as logs

Row = tuple[str, str]
_WIDTH = 11


@dataclass(frozen=True, slots=True)
class Greeting:
    """`vinery` is how commands are called, see `command_words`. `public_url`: behind a proxy."""

    base_url: str
    home: Home
    pid: int
    vinery: str
    public_url: str = ""

    @classmethod
    def of(cls, server: RunningServer, home: Home) -> "Greeting":
        public_url = env.url("VINERY_PUBLIC_URL")
        return cls(server.base_url, home, server.pid, command_words(), public_url)

    def for_terminal(self, known: Credentials | None, *, is_first_start: bool) -> str:
        """With the key, and at the first start also with the password."""
        rows = [*self._addresses(), *self._credentials(known, is_first_start=is_first_start)]
        return _block("running", [*rows, *self._commands()])

    def for_log(self, known: Credentials | None) -> str:
        """Without secrets: more people and programs read a log than the credentials are for."""
        file = self.home.bootstrap_file
        show = f"To see the credentials: cat {shlex.quote(str(file))}" if known else ""
        rows = [*self._addresses(), *self._commands(), *([] if known else [self._no_key()])]
        return _block("running", rows, show)

    def already_running(self) -> str:
        title = f"Vinery already runs with the home {self.home.path} (process {self.pid})"
        stop = ("stop", f"Ctrl-C in its terminal, or: kill {self.pid}")
        return _block(title, [*self._addresses(), self._key_file(), stop])

    def _addresses(self) -> Iterator[Row]:
        yield "URL", self.public_url or self.base_url
        yield "console", f"{self.public_url or self.base_url}/console/"
        yield "admin", f"{self.public_url or self.base_url}/admin/"
        yield "API", f"{self.public_url or self.base_url}/v1 (the base URL for OpenAI clients)"
        if self.public_url:
            yield "local", self.base_url

    def _credentials(self, known: Credentials | None, *, is_first_start: bool) -> Iterator[Row]:
        if known is None:
            yield self._no_key()
            return
        yield "user", known.admin_user
        if is_first_start:
            yield "password", known.admin_password
        yield "API key", known.api_key
        yield self._key_file()

    def _key_file(self) -> Row:
        return "saved in", f"{self.home.bootstrap_file} (user, password and API key)"

    def _no_key(self) -> Row:
        return "API key", f"create one: {self.vinery} key create --name NAME"

    def _commands(self) -> Iterator[Row]:
        yield "commands", f"{self.vinery} --help"
        yield "logs", f"{self.vinery} logs (in {self.home.logs})"
        yield "stop", f"Ctrl-C, or: kill {self.pid}"


def show(server: RunningServer, home: Home, *, is_first_start: bool) -> None:
    """Print the greeting: with secrets on a terminal only, and with JSON lines as a record. Raises
    `SettingError`."""
    if logs.is_json():
        logs.announce(f"running at {server.base_url}")
        return
    known = Credentials.read(home.bootstrap_file)
    greeting = Greeting.of(server, home)
    if sys.stdout.isatty():
        logs.show(greeting.for_terminal(known, is_first_start=is_first_start))
    else:
        logs.show(greeting.for_log(known))
    logs.note_printed(f"running at {server.base_url}")


def _block(title: str, rows: list[Row], last: str = "") -> str:
    lines = [f"  {name.ljust(_WIDTH)}{value}" for name, value in rows]
    return "\n".join([title, "", *lines, "", *([f"  {last}", ""] if last else [])])


# -- How a user calls `vinery` from another shell, for messages that show a command


def command_words() -> str:
    """The words before a command, such as `VINERY_HOME=/srv/v /srv/w/bin/vinery`: with the program
    of this environment, and the home or the configuration file if other shells do not find it."""
    return " ".join([*_variables(), shlex.quote(_program())])


def _program() -> str:
    script = Path(sys.executable).with_name("vinery")
    found = shutil.which("vinery")
    is_found = found is not None and Path(found).resolve() == script.resolve()
    return "vinery" if is_found else str(script)  # whole: commands are copied into any shell


def _variables() -> list[str]:
    named, home = env.text(config_file.VARIABLE), Home.from_env().path
    needed = {}
    if Path(named).is_file():  # and is not /dev/null
        needed[config_file.VARIABLE] = named
    if home != default_path() and env.origin_of("VINERY_HOME") is None:
        needed["VINERY_HOME"] = str(home)
    return [f"{name}={shlex.quote(value)}" for name, value in needed.items()]
