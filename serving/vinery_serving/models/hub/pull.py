"""Pulls a model from a hub into a folder, which has its final name only when it is complete.

A pull may be ended at any moment, also by kill -9: the next one fetches only the missing bytes, of
the same commit.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from vinery_serving.models.hub import gguf_folder
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.folders import PullFolders
from vinery_serving.models.hub.hub_files import HubFile
from vinery_serving.models.hub.machine import free_bytes
from vinery_serving.models.hub.progress import Progress, Report
from vinery_serving.models.hub.repository import Repository, RepositoryFile
from vinery_serving.models.hub.transfer import Patience, fetch
from vinery_serving.models.hub.verdict import DISK_MARGIN_BYTES, gigabytes

# One of them is beside the model, whose folder may be within that of an archive.
_MODEL_FILES: Final = ("openvino_model.xml", "openvino_language_model.xml", "config.json")


def pull(
    hub: Hub,
    repository: Repository,
    models_dir: Path,
    report: Report,
    *,
    patterns: Sequence[str] = (),
    patience: Patience = Patience(),  # noqa: B008
) -> Path:
    """Fetch the files of a repository, and return their folder. `patterns` are those that the files
    were chosen by. Raises `PullFailed`."""
    folders = PullFolders.of_repository(models_dir, repository, patterns)

    def fill() -> None:
        _fetch_all(hub, repository, folders, report, patience)

    return complete(folders, fill, report)


def complete(folders: PullFolders, fill: Callable[[], None], report: Report) -> Path:
    """Let `fill` put the files into the folder of a pull, unless they are there, and return where a
    model can be served from. Of a GGUF file one is made first. Raises `PullFailed`."""
    try:
        if not folders.final.is_dir():
            with folders.locked():
                folders.create()
                fill()
                for file in sorted(folders.whole.rglob("*.gguf")):
                    report(f"converting {file.name}", 0, None)
                    gguf_folder.convert(file)
                folders.finish()
        return _served_folder(folders.final)
    except OSError as error:
        raise PullFailed(
            f"The files cannot be stored in {folders.root}: {error.strerror}."
        ) from None


def _served_folder(final: Path) -> Path:
    """Return the folder with the model, and remove the GGUF file that it was made of."""
    for file in sorted(final.rglob("*.gguf")):
        file.unlink()
    for name in _MODEL_FILES:
        found = sorted(final.rglob(name), key=lambda path: len(path.parts))
        if found:
            return found[0].parent
    return final


def _fetch_all(
    hub: Hub, repository: Repository, folders: PullFolders, report: Report, patience: Patience
) -> None:
    missing = [each for each in repository.files if not (folders.whole / each.path).is_file()]
    started = sum(_started_bytes(folders, each) for each in missing)
    missing_bytes = sum(each.size_bytes for each in missing)
    check_disk(missing_bytes - started, folders.root)
    done = repository.size_bytes - missing_bytes + started
    progress = Progress(report, repository.size_bytes, done)
    for file in missing:
        progress.enter(f"fetching {file.path}")
        unfinished = folders.unfinished(file.path)
        fetch(HubFile(hub, repository, file.path), file, unfinished, progress.advance, patience)
        whole = folders.whole / file.path
        whole.parent.mkdir(parents=True, exist_ok=True)
        unfinished.replace(whole)


def check_disk(num_bytes: int, folder: Path) -> None:
    """Raises `PullFailed` if the disk has no room for so many bytes more."""
    free = free_bytes(folder)
    if num_bytes + DISK_MARGIN_BYTES > free:
        raise PullFailed(
            f"The missing files take {gigabytes(num_bytes)}, and the disk of {folder} has "
            f"{gigabytes(free)} free. Free some, or move the home folder."
        )


def _started_bytes(folders: PullFolders, file: RepositoryFile) -> int:
    path = folders.unfinished(file.path)
    return path.stat().st_size if path.is_file() else 0
