"""The devices of this machine on which OpenVINO can run models, and whether a name means one.

The node finds the devices in a short process, `vinery_serving.node.device_probe`, and stores the
list in the run folder. Other processes read that list, and never load OpenVINO.
"""

import difflib
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from vinery_accounts.base.files import write_private
from vinery_serving.engine.options import EngineOptions

_FILE: Final = "devices.json"
# Devices of OpenVINO that consist of the devices behind a colon: AUTO:GPU,CPU or BATCH:GPU(4).
_COMPOUNDS: Final = ("AUTO", "HETERO", "BATCH")


class Device(msgspec.Struct, frozen=True):
    name: str  # CPU, GPU, GPU.1, NPU
    full_name: str
    memory_bytes: int | None = None  # of the machine for the CPU; None: unknown
    driver: str | None = None  # the version; None: unknown, or none
    properties: tuple[str, ...] = ()  # of the plugin, that can be set; empty: unknown

    def __str__(self) -> str:
        return f"{self.name} ({self.full_name})"


class DeviceList(msgspec.Struct, frozen=True):
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
    """Raises OSError."""
    write_private(run_dir / _FILE, msgspec.json.encode(DeviceList(tuple(devices), time.time())))


def check_device(text: str, known: DeviceList | None) -> None:
    """Raise ValueError with a sentence for a name that means no device of this machine. While the
    devices are not known, only the form of the name is checked."""
    if text.partition(":")[0] == "MULTI":
        raise ValueError(
            f"OpenVINO GenAI cannot run a model on MULTI. Write {text.replace('MULTI', 'AUTO', 1)} "
            "to let OpenVINO choose a device, or serve the model once for each."
        )
    for name in _parts(text):
        if known is not None and not _is_there(name, known.names):
            text = f"There is no device {name} on this machine."
            found = ", ".join(map(str, known.devices)) or "none"
            advice = "After a change, `vinery devices` looks for them again."
            raise ValueError(f"{text} Devices: {found}. {advice}")


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
    `AUTO:GPU.1,CPU`. Empty for AUTO alone. Raises ValueError for a text that is not a device."""
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
    """Whether a name means one of the devices. GPU is GPU.0, of one GPU or several."""
    family, _, number = name.partition(".")
    if name in known:
        return True
    if not number:
        return any(each.startswith(f"{family}.") for each in known)
    return number == "0" and family != "CPU" and family in known


# -- Whether the device of a model takes the options. A plugin refuses an unknown property only when
# a model is compiled, or ignores it: so each option is checked where an administrator sets it. A
# plugin lists the properties of a present device; the values of options are OpenVINO 2026.4's.

# The number formats in which each device stores the KV cache.
_KV_PRECISIONS: Final = {
    "CPU": ("u8", "u4", "u3", "f16", "bf16", "f32"),
    "GPU": ("u8", "i8", "u4", "i4", "f16"),
}
# Names that OpenVINO itself or GenAI reads, on any device.
_COMMON: Final = (
    *("ALLOW_AUTO_BATCHING", "AUTO_BATCH_TIMEOUT", "CACHE_DIR", "CACHE_MODE"),
    *("DEVICE_PROPERTIES", "ENABLE_MMAP", "MODEL_PROPERTIES", "sampler_num_threads"),
)
# Names that Vinery sets, each with its option.
_OWN: Final = {
    "adapters": "adapters",
    "draft_model": "draft_model or eagle3_head",
    "prompt_lookup": "prompt_lookup",
    "extensions": "logits_processors",
    "scheduler_config": "the options of its fields",
    "MAX_PROMPT_LEN": "max_prompt_len",
    "MIN_RESPONSE_LEN": "min_response_len",
}


def check_device_options(options: EngineOptions, device: str, known: DeviceList | None) -> None:
    """Raise ValueError with a sentence for an option that the device does not take. What depends on
    the machine is not checked while the devices are unknown."""
    if options.draft_device:
        try:
            check_device(options.draft_device, known)
        except ValueError as error:
            raise ValueError(f"draft_device: {error}") from None
    for sentence in _refusals(options, device):
        raise ValueError(sentence)
    taken = _properties_of(device, known)
    for name in options.plugin:
        if name in _OWN:
            raise ValueError(f"plugin cannot set {name}: use {_OWN[name]}.")
        if taken is not None and name not in taken:
            advice = "`vinery devices --json` lists those that it has."
            if near := difflib.get_close_matches(name, taken, n=1):
                advice = f"Did you mean {near[0]}?"
            raise ValueError(f"plugin: {device} has no property {name}. {advice}")


def _refusals(options: EngineOptions, device: str) -> Iterator[str]:
    families, compound = families_of(device), compound_of(device)
    precision = options.kv_cache_precision
    for family in families if precision else ():
        taken = _KV_PRECISIONS.get(family)
        if taken is None:
            yield f"kv_cache_precision is for CPU and GPU, and {device} has {family}. Leave it out."
        elif precision not in taken:
            listed = ", ".join(taken)
            yield f"kv_cache_precision cannot be {precision} on {family}, which takes {listed}."
    policy = options.model_distribution_policy
    distributions = {"CPU": "tensor_parallel", "HETERO": "pipeline_parallel"}
    if policy and distributions.get(compound or device) != policy:
        needed = "the device CPU" if policy == "tensor_parallel" else "HETERO"
        yield f"model_distribution_policy can be {policy} only with {needed}, not with {device}."
    for name in ("max_prompt_len", "min_response_len"):
        if getattr(options, name) and (compound or families != ["NPU"]):
            yield f"{name} is for the device NPU, not for {device}. Leave it out."
    if options.num_threads and device != "CPU" and options.draft_device != "CPU":
        yield f"num_threads is for the device CPU, not for {device}. Leave it out."
    for name in ("cache_eviction", "sparse_attention"):
        if (group := getattr(options, name)) is not None:
            try:
                # Tokens in a block of the KV cache.
                group.check_block(32 if "CPU" in families else 1)
            except ValueError as error:
                yield f"{name}: on {device}, {error}."


def _properties_of(device: str, known: DeviceList | None) -> Collection[str] | None:
    """Return the names that can be set; None: unknown, as for devices that consist of others."""
    families = families_of(device)
    if known is None or compound_of(device) or not families:
        return None
    found = [each for each in known.devices if each.name.partition(".")[0] in families]
    if not found or not all(each.properties for each in found):
        return None
    # GenAI reads these names, which are no properties of the plugin.
    of_npu = ("PREFILL_HINT", "GENERATE_HINT", "PREFILL_CONFIG", "GENERATE_CONFIG")
    own = of_npu if "NPU" in families else ()
    return {*_COMMON, *own}.union(*(each.properties for each in found))
