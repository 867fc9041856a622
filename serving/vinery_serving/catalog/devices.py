"""The devices of this machine on which OpenVINO can run models, and whether a name means one.

The node finds them in a short process of its own, `vinery_serving.node.device_probe`, and stores
them in the run folder. Other processes read them there: they never load OpenVINO.
"""

import os
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "devices.json"
# Devices of OpenVINO that consist of others, named behind a colon: AUTO:GPU,CPU or BATCH:GPU(4).
_COMPOUNDS: Final = ("AUTO", "HETERO", "BATCH")
_NO_MULTI: Final = (
    "OpenVINO GenAI cannot run a model on MULTI. Write {auto} to let OpenVINO choose a device, or "
    "serve the model once for each."
)


class Device(msgspec.Struct, frozen=True):
    """A device, as OpenVINO describes it."""

    name: str  # CPU, GPU, GPU.1, NPU
    full_name: str
    memory_bytes: int | None = None  # of the machine for the CPU; None: unknown
    driver: str | None = None  # its version; None: unknown, or there is none
    properties: tuple[str, ...] = ()  # of its plugin, which can be set; empty: unknown

    def __str__(self) -> str:
        return f"{self.name} ({self.full_name})"


class DeviceList(msgspec.Struct, frozen=True):
    """All devices of a machine at one moment."""

    devices: tuple[Device, ...]
    found_at: float  # Unix time

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.devices]


def read(run_dir: Path) -> DeviceList | None:
    """Return the devices that were found last; None if no process has looked for them yet."""
    try:
        return msgspec.json.decode((run_dir / _FILE).read_bytes(), type=DeviceList)
    except (OSError, msgspec.MsgspecError):
        return None


def write(run_dir: Path, devices: Sequence[Device]) -> None:
    """Store what was found. Raises OSError."""
    content = msgspec.json.encode(DeviceList(tuple(devices), time.time()))
    handle, draft = tempfile.mkstemp(dir=run_dir, prefix=f".{_FILE}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(draft).replace(run_dir / _FILE)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


def check_device(text: str, known: DeviceList | None) -> None:
    """Raise ValueError with a sentence for a name that means no device of this machine. While the
    devices are not known, only the form of the name is checked."""
    if text.partition(":")[0] == "MULTI":
        raise ValueError(_NO_MULTI.format(auto=text.replace("MULTI", "AUTO", 1)))
    for name in _parts(text):
        if known is not None and not _is_there(name, known.names):
            raise ValueError(_no_device(name, known))


def first_device(text: str) -> str:
    """Return the device whose memory a model takes: the first one of `HETERO:GPU.1,CPU`. GPU.0 is
    GPU, and AUTO alone counts as CPU."""
    try:
        first = next(iter(_parts(text)), "CPU")
    except ValueError:
        first = text
    return first.removesuffix(".0")


def compound_of(text: str) -> str | None:
    """Return the first word of a device that consists of others: HETERO of `HETERO:GPU,CPU`."""
    word = text.partition(":")[0]
    return word if word in _COMPOUNDS else None


def families_of(text: str) -> list[str]:
    """Return the kinds of the devices that a name means, without numbers: GPU and CPU of
    `AUTO:GPU.1,CPU`. Empty for AUTO alone. Raises ValueError for what is not a device."""
    return list(dict.fromkeys(each.partition(".")[0] for each in _parts(text)))


def _parts(text: str) -> list[str]:
    """Return the devices that a name means: GPU and CPU of `HETERO:GPU,CPU`. AUTO alone and
    excluded devices, such as -CPU, mean none. Raises ValueError."""
    compound, colon, list_ = text.partition(":")
    if compound not in _COMPOUNDS:
        parts = [text]
    elif not colon:
        if compound == "AUTO":
            return []
        raise ValueError(f"{compound} needs devices, such as {compound}:GPU.")
    else:
        parts = [re.sub(r"\(\d+\)\Z", "", each.strip()) for each in list_.split(",")]
    for each in parts:
        if not re.fullmatch(r"-?[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_.]+)?", each):
            raise ValueError(
                f"{text} is not a device. Write a name such as CPU, GPU.1 or AUTO:GPU,CPU."
            )
    return [each for each in parts if not each.startswith("-")]


def _is_there(name: str, known: Iterable[str]) -> bool:
    """Whether this is one of the devices. GPU is GPU.0, with several of them and with one."""
    family, _, number = name.partition(".")
    if name in known:
        return True
    if not number:
        return any(each.startswith(f"{family}.") for each in known)
    return number == "0" and family != "CPU" and family in known


def _no_device(name: str, known: DeviceList) -> str:
    text = f"There is no device {name} on this machine."
    if _is_there(name.upper(), known.names):
        return f"{text} Did you mean {name.upper()}?"
    devices = ", ".join(map(str, known.devices)) or "none"
    return f"{text} Devices: {devices}. After a change, `vinery devices` looks for them again."
