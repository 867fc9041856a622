"""The text of `vinery up` once the web process answers: addresses, credentials, commands."""

import shlex
import shutil
import sys
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

    def text(self, known: Credentials | None, *, shows_key: bool, shows_password: bool) -> str:
        """Without secrets for a log: more people and programs read a log than secrets are for."""
        rows = self._addresses()
        if known is None:
            rows.append(("API key", f"create one: {self.vinery} key create --name NAME"))
        else:
            rows.append(("user", known.admin_user))
            rows += [("password", known.admin_password)] if shows_password else []
            rows += [("API key", known.api_key)] if shows_key else []
            rows.append(self._key_file())
        rows.append(("commands", f"{self.vinery} --help"))
        rows.append(("logs", f"{self.vinery} logs (in {self.home.logs})"))
        return _block("running", [*rows, self._stop()])

    def already_running(self) -> str:
        title = f"Vinery already runs with the home {self.home.path} (process {self.pid})"
        return _block(title, [*self._addresses(), self._key_file(), self._stop()])

    def _addresses(self) -> list[Row]:
        url = self.public_url or self.base_url
        rows = [("URL", url), ("console", f"{url}/console/"), ("admin", f"{url}/admin/")]
        rows.append(("API", f"{url}/v1 (the base URL for OpenAI clients)"))
        return [*rows, ("local", self.base_url)] if self.public_url else rows

    def _key_file(self) -> Row:
        return "saved in", f"{self.home.bootstrap_file} (user, password and API key)"

    def _stop(self) -> Row:
        return "stop", f"Ctrl-C in its terminal, or: kill {self.pid}"


def show(server: RunningServer, home: Home, *, is_first_start: bool) -> None:
    """Print the greeting: with secrets on a terminal only, and with JSON lines as a record. Raises
    `SettingError`."""
    if logs.is_json():
        logs.announce(f"running at {server.base_url}")
        return
    known, is_terminal = Credentials.read(home.bootstrap_file), sys.stdout.isatty()
    shows_password = is_terminal and is_first_start
    text = Greeting.of(server, home).text(
        known, shows_key=is_terminal, shows_password=shows_password
    )
    logs.show(text)
    logs.note_printed(f"running at {server.base_url}")


def _block(title: str, rows: list[Row]) -> str:
    return "\n".join([title, "", *(f"  {name.ljust(_WIDTH)}{value}" for name, value in rows), ""])


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
