"""What an administrator reads when a model cannot be loaded: the cause and what to do, above the
words of OpenVINO.

Each row of the table is a pattern in the error of OpenVINO 2026.4, its cause and an advice, in
which groups of the pattern may stand. The first row that matches holds.
"""

import re
from dataclasses import dataclass
from typing import Final

from vinery_serving.node.backoff import FailureKind


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a model did not load."""

    kind: FailureKind
    text: str  # for administrators: what happened and what to do; then the original, if it differs


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
        r"Incorrect weights in bin file|is_valid_weights_range",
        "A weights file is cut: it is shorter than its graph needs.",
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
        r"Resource temporarily unavailable|m_ptr != nullptr",
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
    """Return the failure of an engine that a signal ended before it had loaded."""
    sentence = "The engine was killed while it loaded, as a system does that runs out of memory."
    return LoadFailure(FailureKind.KILLED, f"{sentence}\n\n{original}")
