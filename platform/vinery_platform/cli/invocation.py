"""How a user calls `vinery` from another shell, for messages that show a command."""

import shlex
import shutil
import sys
from pathlib import Path

from vinery_platform.config import config_file, env
from vinery_platform.config.home import Home, default_path


def vinery() -> str:
    """The words before a command, such as `VINERY_HOME=/srv/v .venv/bin/vinery`: with the program
    of this environment, and the home or the configuration file if other shells do not find it."""
    return " ".join([*_variables(), shlex.quote(_program())])


def quoted(path: Path) -> str:
    """A path as a word of a shell."""
    return shlex.quote(str(path))


def _program() -> str:
    script = Path(sys.executable).with_name("vinery")
    found = shutil.which("vinery")
    if found is not None and Path(found).resolve() == script.resolve():
        return "vinery"
    here = Path.cwd()
    # Below the root folder every path would be short, and useless in another one.
    is_near = here != Path(here.anchor) and script.is_relative_to(here)
    return str(script.relative_to(here) if is_near else script)


def _variables() -> list[str]:
    """The variables that another shell needs."""
    named, home = env.text(config_file.VARIABLE), Home.from_env().path
    needed = {}
    if Path(named).is_file():  # and is not /dev/null
        needed[config_file.VARIABLE] = named
    if home != default_path() and env.origin_of("VINERY_HOME") is None:
        needed["VINERY_HOME"] = str(home)
    return [f"{name}={shlex.quote(value)}" for name, value in needed.items()]
