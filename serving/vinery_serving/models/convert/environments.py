"""The environments of the exporter: a folder for each line, made on demand and whole or not at all.

A new environment is made in a draft folder, tried, and renamed. A draft that a killed process has
left is removed. Programs run as `bin/python -m`: a virtual environment may be renamed, but the
first lines of its scripts name the old folder.
"""

import fcntl
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from vinery_serving.models.convert import child
from vinery_serving.models.convert.checkpoint import ConvertError, Line, lines
from vinery_serving.models.convert.child import ChildFailed, program_needs
from vinery_serving.models.jobs import locked
from vinery_serving.processes.calls import Act
from vinery_serving.processes.child import NETWORK_VARIABLES
from vinery_serving.processes.confine import Needs, network_files

_NOTE: Final = "vinery.json"  # the digest of the line, written last
_NEEDED_BYTES: Final = 6 << 30  # packages, their archives, and room for a conversion's files
_INSTALL_TIMEOUT_S: Final = 3600.0
_TRY: Final = "import torch, transformers, nncf, openvino_tokenizers, optimum.exporters.openvino"
_OF_PIP: Final = ("/etc/pip.conf", "/etc/xdg/pip", "~/.pip", "~/.config/pip", "~/.netrc")
_ABOUT_TORCH: Final = (
    "VINERY_JOB_TORCH_INDEX must name an index with a build of torch for CPUs, or be `none` if "
    "pip's own index has one."
)
_ABOUT_PACKAGES: Final = (
    "See the log, and whether pip reaches its index. A mirror must have the files of PyPI: their "
    "hashes are checked."
)


def torch_index(setting: str) -> str:
    """Return the index that VINERY_JOB_TORCH_INDEX means; empty: pip's own only. By default that of
    builds without CUDA, which are ten times smaller."""
    return "" if setting == "none" else setting or "https://download.pytorch.org/whl/cpu"


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


class Environments:
    """The environments below one folder.

    `torch_index` has a build of torch without CUDA, and is asked for torch alone; empty: torch
    comes from pip's own indexes.
    """

    def __init__(self, folder: Path, torch_index: str = "") -> None:
        self._folder = folder
        self._torch_index = torch_index

    def find(self, line: Line) -> Path | None:
        environment = self._folder / line.name
        try:
            note = json.loads((environment / _NOTE).read_bytes())
        except (OSError, ValueError):
            return None
        # An upgrade of Vinery or of Python makes an environment useless.
        is_usable = note.get("digest") == line.digest and python_of(environment).exists()
        return environment if is_usable else None

    def states(self) -> Iterator[dict[str, Any]]:
        for line in lines().values():
            folder = self._folder / line.name
            state = "obsolete" if folder.exists() else "missing"
            state = "ready" if self.find(line) else state
            num_bytes = folder_bytes(folder)
            yield {"line": line.name, "state": state, "folder": folder, "num_bytes": num_bytes}

    @contextmanager
    def used(self, line: Line) -> Iterator[Path]:
        """Hold an environment against removal. Raises `ConvertError` if there is none."""
        with self._lock(line, fcntl.LOCK_SH, f"The environment {line.name} is being made."):
            environment = self.find(line)
            if environment is None:
                raise ConvertError(f"The environment {line.name} is missing.")
            yield environment

    async def ensure(self, line: Line, write: Callable[[bytes], object]) -> Path:
        """Return the environment, made first if missing or obsolete. Raises `ConvertError`, also
        while another process makes or uses it."""
        if environment := self.find(line):
            return environment
        busy = f"Another process makes or uses the environment {line.name}. Try again later."
        try:
            with self._lock(line, fcntl.LOCK_EX, busy):
                return self.find(line) or await self._make(line, write)
        except TimeoutError:
            raise ConvertError(
                f"The environment {line.name} was not made within {_INSTALL_TIMEOUT_S:g} s."
            ) from None

    def remove(self, line: Line) -> bool:
        """Remove an environment; False: there is none. Raises `ConvertError` while it is used."""
        busy = f"The environment {line.name} is in use. Wait until the conversion ends."
        with self._lock(line, fcntl.LOCK_EX, busy):
            is_there = (self._folder / line.name).exists()
            self._discard(self._folder / line.name)
            self._discard(self._draft(line))
        return is_there

    async def _make(self, line: Line, write: Callable[[bytes], object]) -> Path:
        draft, final = self._draft(line), self._folder / line.name
        self._discard(draft)
        free = shutil.disk_usage(self._folder).free
        if free < _NEEDED_BYTES:
            raise ConvertError(
                f"An environment needs {_NEEDED_BYTES >> 30} GB of disk, and {self._folder} has "
                f"{free / 2**30:.1f} GB. Free some, or remove one that is not needed: vinery "
                "convert remove LINE"
            )
        try:
            await self._install(line, draft, write)
        except BaseException:
            self._discard(draft)
            raise
        (draft / _NOTE).write_text(json.dumps({"digest": line.digest}), encoding="utf-8")
        self._discard(final)
        return draft.rename(final)

    async def _install(self, line: Line, folder: Path, write: Callable[[bytes], object]) -> None:
        python = str(python_of(folder))
        pip = (python, "-m", "pip", "install", "--no-input", "--no-deps")
        index = ("--index-url", self._torch_index) if self._torch_index else ()
        requirements, scratch = folder / "requirements.txt", folder / "tmp"
        scratch.mkdir(parents=True)
        requirements.write_text("\n".join(line.packages), encoding="ascii")
        of_pip = pip_needs(folder)
        programs = (folder, python_of(folder))
        steps = (
            ((sys.executable, "-m", "venv", str(folder)), of_pip, "Install Python's venv module."),
            ((*pip, *index, line.torch), of_pip, _ABOUT_TORCH),
            ((*pip, "--require-hashes", "-r", str(requirements)), of_pip, _ABOUT_PACKAGES),
            ((python, "-c", _TRY), program_needs(programs, writes=(scratch,)), _ABOUT_TORCH),
        )
        for command, needs, advice in steps:
            is_pip = needs is of_pip
            # Libraries keep notes in the home.
            homes = ("TMPDIR",) if is_pip else ("TMPDIR", "HOME")
            try:
                await child.run(
                    command,
                    write,
                    needs,
                    timeout_s=_INSTALL_TIMEOUT_S,
                    variables=dict.fromkeys(homes, str(scratch)),
                    passed_on=("PIP_", *NETWORK_VARIABLES) if is_pip else (),
                )
            except ChildFailed as error:
                raise ConvertError(
                    f"The environment {line.name} could not be made: {error.last_line}. {advice}"
                ) from error
        shutil.rmtree(scratch)

    def _draft(self, line: Line) -> Path:
        return self._folder / f".{line.name}.new"

    def _discard(self, path: Path) -> None:
        """Remove a folder. It is renamed first: no half folder may have the name."""
        if not path.exists():
            return
        trash = path.with_name(f".{path.name.lstrip('.')}.old")
        shutil.rmtree(trash, ignore_errors=True)
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _lock(self, line: Line, how: int, busy: str) -> AbstractContextManager[None]:
        """Raises `ConvertError` with the text `busy` while another process holds the lock."""
        return locked(self._folder / f".{line.name}.lock", ConvertError(busy), how)


def pip_needs(folder: Path) -> Needs:
    """What pip needs to install into a folder: its indexes, and what its configuration names."""
    own = [Path(each).expanduser() for each in _OF_PIP]
    configured = (each / "pip.conf" if each.is_dir() else each for each in own)
    texts = [each.read_text("utf-8", "replace") for each in configured if each.is_file()]
    texts += (value for name, value in os.environ.items() if name.startswith("PIP_"))
    text = "\n".join(texts)
    paths = re.findall(r"(?:^|[\s=])(/\S+)", text)
    # The files of an index lie beside it.
    indexes = [str(Path(each).parent) for each in re.findall(r"file://(/\S+)", text)]
    reads = (*network_files(), *own, *map(Path, paths + indexes))
    needs = program_needs((folder, Path(sys.executable)), reads, (folder,))
    acts = needs.acts | {Act.CONNECT, Act.OWN}
    return replace(needs, acts=acts, families=(socket.AF_INET, socket.AF_INET6))


def folder_bytes(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) if folder.is_dir() else 0
