"""The text for administrators when a model cannot load, and when loading is tried again.

An engine that had loaded is started again for as long as the model should be loaded. A model that
cannot load is tried a few times. The model then stays failed until its files or settings change, or
an administrator asks to try again.

The text is the cause and what to do, above the words of OpenVINO. Each row of the table is a
pattern in the error of OpenVINO 2026.4, its cause and an advice, in which groups of the pattern may
stand. The first row that matches holds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class FailureKind(Enum):
    FINAL = auto()  # files, options or a device: another attempt ends in the same way
    PASSING = auto()  # memory or disk that may be free later, and what is unknown
    KILLED = auto()  # a signal ended the engine; the model is not the cause


# The pauses between attempts, in seconds.
_PAUSES_S: Final[Mapping[FailureKind, tuple[float, ...]]] = {
    FailureKind.FINAL: (),
    FailureKind.PASSING: (1.0, 5.0, 20.0),
    FailureKind.KILLED: (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8),
}


@dataclass(frozen=True, slots=True)
class LoadFailure:
    kind: FailureKind
    text: str  # for administrators: cause and advice; then the original text if it differs


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: str
    cause: str
    advice: str
    kind: FailureKind = FailureKind.FINAL


_COPY_AGAIN: Final = "Copy the folder again."
_OTHER_DEVICE: Final = "or choose another device: `vinery devices` lists those of this machine."
_KNOWN: Final = (
    _Known(
        r"Cannot load library \S*intel_gpu_plugin",
        "This machine has no GPU runtime, so OpenVINO cannot use a GPU.",
        f"Install Intel's compute runtime (OpenCL) and the driver of the GPU, {_OTHER_DEVICE}",
    ),
    _Known(
        r"\[GPU\].*no supported devices found|\[GPU\].*clGetPlatformIDs",
        "OpenVINO found no GPU that it can use.",
        f"Install the driver of the GPU, let this user read /dev/dri, {_OTHER_DEVICE}",
    ),
    _Known(
        r"CL_OUT_OF_\w+|CL_MEM_OBJECT_ALLOCATION_FAILURE|Exceeded max size of memory",
        "The memory of the GPU is too small for this model now.",
        "Unload other models, choose a model with smaller weights, or lower cache_size_gb.",
        FailureKind.PASSING,
    ),
    _Known(
        r"plugins/intel_npu|openvino_intel_npu|libze_loader|ZE_RESULT_ERROR",
        "This machine has no NPU driver, so OpenVINO cannot use an NPU.",
        f"Install Intel's NPU driver, {_OTHER_DEVICE}",
    ),
    _Known(
        r'Device with "(?P<device>[^"]*)" name is not registered',
        "OpenVINO knows no device {device}.",
        "Choose one that `vinery devices` lists.",
    ),
    _Known(
        r"CPU plugin supports only '' as device id",
        "A machine has one device CPU, without a number.",
        "Choose CPU.",
    ),
    _Known(
        r"(Incorrect weights|Empty weights data) in bin file|is_valid_weights_range|"
        r"No such file or directory: \S+\.bin",
        "A weights file is missing or cut: it is shorter than its graph needs.",
        _COPY_AGAIN,
    ),
    _Known(
        r"While validating node",
        "The weights do not fit the graph: they are damaged, or belong to another model.",
        f"{_COPY_AGAIN} A graph (.xml) and its weights (.bin) come from the same export.",
    ),
    _Known(
        r"unsupported opset|doesn't contain the operation with type",
        "The graph has an operation that this version of OpenVINO does not know.",
        "Export the model for this version, or upgrade Vinery.",
    ),
    _Known(
        r"Unable to read the model",
        "The graph cannot be read: it is not complete, or not one of OpenVINO.",
        _COPY_AGAIN,
    ),
    _Known(
        r"budget_in_bytes <= total_available_memory",
        "The KV cache of the option cache_size_gb is larger than the memory.",
        "Lower cache_size_gb; with 0 the cache grows as needed.",
    ),
    _Known(
        r"Unsupported property (?P<name>\S+) by (?P<device>\S+) plugin",
        "The device {device} has no property {name}.",
        "Change the option plugin.",
    ),
    _Known(
        r"Wrong value (?P<value>.*?)\s?for property key (?P<name>\w+)",
        "The property {name} cannot be {value}.",
        "Change the option plugin.",
    ),
    _Known(
        r"std::bad_alloc|Cannot allocate memory|MemoryError|[Oo]ut of memory|"
        r"Resource temporarily unavailable|m_ptr != nullptr|can't alloc",
        "There is not enough memory to load this model now.",
        "Unload other models, choose a model with smaller weights, or raise the limit of memory "
        "under which Vinery runs.",
        FailureKind.PASSING,
    ),
    _Known(
        r"\.xml is not an OpenVINO graph|cannot be imported:|draft model's folder|The adapter |"
        r"The EAGLE-3 head ",
        "",
        "",
    ),
)


def load_failure(original: str) -> LoadFailure:
    """Return what an error of an engine that did not load means. An unknown error is itself."""
    original = original.strip()
    for known in _KNOWN:
        if found := re.search(known.pattern, original, re.DOTALL):
            sentences = f"{known.cause} {known.advice}".format(**found.groupdict())
            return LoadFailure(known.kind, f"{sentences}\n\n{original}".strip())
    return LoadFailure(FailureKind.PASSING, original)


def killed(original: str) -> LoadFailure:
    sentence = "The engine was killed while it loaded, as a system does that runs out of memory."
    return LoadFailure(FailureKind.KILLED, f"{sentence}\n\n{original}")


class LoadAttempts:
    def __init__(self) -> None:
        self.num_failed = 0
        self.max = 0  # attempts in all, by the last failure; 0 before the first one

    def pause_after(self, kind: FailureKind) -> float | None:
        """Count a failed attempt. Returns the pause before the next one in seconds; None: there is
        none."""
        pauses = _PAUSES_S[kind]
        self.num_failed += 1
        self.max = max(self.num_failed, len(pauses) + 1)
        return pauses[self.num_failed - 1] if self.num_failed <= len(pauses) else None
