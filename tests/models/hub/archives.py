"""Archives of models, and archives that no model comes in."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.models.hub.models import TINY_CHAT

FILES = {each.name: each.read_bytes() for each in TINY_CHAT.iterdir()}


def write_tar(path: Path, files: Mapping[str, bytes], prefix: str = "", mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            archive.addfile(member, io.BytesIO(content))
    return path


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_special(path: Path, kind: bytes, target: str) -> Path:
    """Write a tar with one member that is no plain file."""
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("openvino_model.xml")
        member.type, member.linkname = kind, target
        archive.addfile(member)
    return path


def write_zip_link(path: Path, target: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo("openvino_model.xml")
        member.create_system, member.external_attr = 3, 0o120777 << 16
        archive.writestr(member, target)
    return path
