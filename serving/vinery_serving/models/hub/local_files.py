"""Models that are files of this machine already: a folder, or a GGUF file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.gguf import read_metadata
from vinery_serving.models.hub.repository import Repository, RepositoryFile

_COPY_BYTES: Final = 4 << 20
_ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_archive(path: Path) -> bool:
    """Whether the name is that of an archive."""
    return path.name.lower().endswith(_ARCHIVES)


def local_repository(path: Path) -> Repository:
    """Return the files of a folder, or a GGUF file, as a repository without a commit, to be judged.
    Raises `PullFailed`."""
    if path.is_file():
        return _of_gguf(path)
    if not path.is_dir():
        raise PullFailed(f"There is no folder or file {path}.")
    files = tuple(
        RepositoryFile(each.relative_to(path).as_posix(), each.stat().st_size)
        for each in sorted(path.rglob("*"))
        if each.is_file()
    )
    ggufs = [each for each in files if each.path.endswith(".gguf")]
    metadata = read_metadata(path / ggufs[0].path) if len(ggufs) == 1 else {}
    return Repository(
        name=path.name,
        revision="",
        commit="",
        files=files,
        config=_object(path / "config.json"),
        openvino_config=_object(path / "openvino_config.json"),
        chat_template=_object(path / "tokenizer_config.json").get("chat_template"),
        gguf_architecture=metadata.get("general.architecture"),
    )


def _of_gguf(path: Path) -> Repository:
    architecture = read_metadata(path).get("general.architecture")
    files = (RepositoryFile(path.name, path.stat().st_size),)
    return Repository(path.stem, "", "", files, gguf_architecture=architecture)


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        raise PullFailed(f"{path} is no JSON object.") from None
    return value if isinstance(value, dict) else {}


def copy(source: Path, target: Path, unfinished: Path, advance: Callable[[int], None]) -> None:
    """Copy a file, unless an earlier attempt has. Raises OSError."""
    if target.is_file():
        advance(target.stat().st_size)
        return
    with source.open("rb") as reading, unfinished.open("wb") as writing:
        while block := reading.read(_COPY_BYTES):
            writing.write(block)
            advance(len(block))
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished.replace(target)
