"""Whether the device of a model takes its options.

Plugins refuse properties that they do not have when a model is compiled, and ignore some. So each
option is checked where it is set. The plugin of a device that this machine has lists its
properties; the values of an option are those of OpenVINO 2026.4.
"""

import difflib
from collections.abc import Collection, Iterator
from typing import Final

from vinery_serving.catalog.devices import DeviceList, check_device, compound_of, families_of
from vinery_serving.engine.options import EngineOptions

# The numbers in which each device stores the KV cache.
_KV_PRECISIONS: Final = {
    "CPU": ("u8", "u4", "u3", "f16", "bf16", "f32"),
    "GPU": ("u8", "i8", "u4", "i4", "f16"),
}
_DISTRIBUTIONS: Final = {"CPU": "tensor_parallel", "HETERO": "pipeline_parallel"}
_BLOCKS: Final = {"CPU": 32}  # tokens in a block of the KV cache; of all others 16
_OF_NPU: Final = ("max_prompt_len", "min_response_len")
# Of an NPU GenAI reads these; they are no properties of the plugin.
_OF_NPU_PIPELINE: Final = ("PREFILL_HINT", "GENERATE_HINT", "PREFILL_CONFIG", "GENERATE_CONFIG")
# What OpenVINO itself reads, whatever the device is, or GenAI.
_COMMON: Final = (
    *("ALLOW_AUTO_BATCHING", "AUTO_BATCH_TIMEOUT", "CACHE_DIR", "CACHE_MODE"),
    *("DEVICE_PROPERTIES", "ENABLE_MMAP", "MODEL_PROPERTIES", "sampler_num_threads"),
)
_OF_COMPOUNDS: Final = {
    "AUTO": "DEVICE_BIND_BUFFER ENABLE_RUNTIME_FALLBACK ENABLE_STARTUP_FALLBACK "
    "EXECUTION_MODE_HINT LOG_LEVEL MODEL_PRIORITY MULTI_DEVICE_PRIORITIES PERFORMANCE_HINT "
    "PERFORMANCE_HINT_NUM_REQUESTS PERF_COUNT SCHEDULE_POLICY",
    "HETERO": "MODEL_DISTRIBUTION_POLICY MULTI_DEVICE_PRIORITIES",
    "BATCH": "MULTI_DEVICE_PRIORITIES PERF_COUNT",
}
# What Vinery sets itself, and by which option.
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
    the devices of the machine is not checked while they are unknown."""
    if options.draft_device:
        try:
            check_device(options.draft_device, known)
        except ValueError as error:
            raise ValueError(f"draft_device: {error}") from None
    for sentence in _refusals(options, device):
        raise ValueError(sentence)
    _check_properties(options, device, known)


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
    if policy and _DISTRIBUTIONS.get(compound or device) != policy:
        needed = "the device CPU" if policy == "tensor_parallel" else "HETERO"
        yield f"model_distribution_policy can be {policy} only with {needed}, not with {device}."
    for name in _OF_NPU:
        if getattr(options, name) and (compound or families != ["NPU"]):
            yield f"{name} is for the device NPU, not for {device}. Leave it out."
    if options.num_threads and device != "CPU" and options.draft_device != "CPU":
        yield f"num_threads is for the device CPU, not for {device}. Leave it out."
    block = max((_BLOCKS.get(each, 1) for each in families), default=1)
    for name in ("cache_eviction", "sparse_attention"):
        group = getattr(options, name)
        if group is None:
            continue
        try:
            group.check_block(block)
        except ValueError as error:
            yield f"{name}: on {device}, {error}."


def _check_properties(options: EngineOptions, device: str, known: DeviceList | None) -> None:
    """Raises ValueError for a property in the option `plugin`."""
    taken = _properties_of(device, known)
    for name in options.plugin:
        if name in _OWN:
            raise ValueError(f"plugin cannot set {name}: use {_OWN[name]}.")
        if taken is not None and name not in taken:
            near = difflib.get_close_matches(name, taken, n=1)
            advice = (
                f"Did you mean {near[0]}?"
                if near
                else "`vinery devices --json` lists those that it has."
            )
            raise ValueError(f"plugin: {device} has no property {name}. {advice}")


def _properties_of(device: str, known: DeviceList | None) -> Collection[str] | None:
    """Return what can be set for a device; None: it is unknown."""
    compound, families = compound_of(device), families_of(device)
    if known is None or not families:
        return None
    found = [each for each in known.devices if each.name.partition(".")[0] in families]
    if not found or not all(each.properties for each in found):
        return None
    own = _OF_COMPOUNDS.get(compound or "", "").split()
    own += _OF_NPU_PIPELINE if "NPU" in families else ()
    return {*_COMMON, *own}.union(*(each.properties for each in found))
