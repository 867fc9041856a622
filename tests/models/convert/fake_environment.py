"""Environments that are made at once, without pip: with an exporter that a test writes, or with the
packages of another environment."""

import json
import sys
from pathlib import Path

from vinery_serving.models.convert.checkpoint import line_named
from vinery_serving.models.convert.environments import Environments

_CONFIG = f"home = {Path(sys.base_prefix) / 'bin'}\ninclude-system-site-packages = false\n"


def write_environment(folder: Path, exporter: str, line_name: str = "5.0") -> Environments:
    """Write the environment of a line. `exporter` is the code of `optimum-cli`."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lib = folder / "lib"
    commands = lib / version / "site-packages" / "optimum" / "commands"
    commands.mkdir(parents=True)
    (commands.parent / "__init__.py").touch()
    (commands / "__init__.py").touch()
    (commands / "optimum_cli.py").write_text(exporter)
    return borrow_environment(folder, lib, line_name)


def borrow_environment(folder: Path, lib: Path, line_name: str = "5.0") -> Environments:
    """Write the environment of a line with the packages in the folder `lib` of another
    environment."""
    environment = folder / line_name
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(_CONFIG)
    (environment / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (environment / "lib").symlink_to(lib)
    note = {"digest": line_named(line_name).digest}
    (environment / "vinery.json").write_text(json.dumps(note))
    return Environments(folder)
