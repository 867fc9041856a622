"""What a search for better options tries: one setting after the other, several values of each."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import psutil

_BATCHES: Final = (1024, 512, 128)
_KV_PRECISIONS: Final = ("u8", "f16")
_QUANTIZATION_GROUPS: Final = ("0", "32", "128")
_KV: Final = "KV_CACHE_PRECISION"
_GROUP: Final = "DYNAMIC_QUANTIZATION_GROUP_SIZE"


class Change(msgspec.Struct, frozen=True):
    """A change of engine options. Those of `plugin` are added to the others in it."""

    what: str  # in words for administrators
    options: dict[str, Any]

    def applied_to(self, options: Mapping[str, Any]) -> dict[str, Any]:
        changed = {**options, **self.options}
        if "plugin" in self.options:
            changed["plugin"] = {**options.get("plugin", {}), **self.options["plugin"]}
        return changed


# As GenAI is without any option.
GENAI_DEFAULTS: Final[Mapping[str, Any]] = {"enable_prefix_caching": False}


def knobs(options: Mapping[str, Any], *, device: str, is_vision: bool) -> Iterator[list[Change]]:
    """Yield the values of each setting that the device has and that differ from `options`. What
    mostly helps comes first."""
    is_cpu = device == "CPU"
    if not options.get("enable_prefix_caching", True):
        yield [Change("prefix caching", {"enable_prefix_caching": True})]
    present = options.get("max_num_batched_tokens", 256)
    yield [
        Change(f"{size} tokens in a step", {"max_num_batched_tokens": size})
        for size in _BATCHES
        if size != present
    ]
    drafting = ("draft_model", "eagle3_head", "prompt_lookup")
    if not (is_vision or any(options.get(each) for each in drafting)):
        yield [Change("prompt lookup", {"prompt_lookup": True})]
    if is_cpu:
        yield _threads(options)
        yield _plugin(options, _GROUP, _QUANTIZATION_GROUPS, "dynamic quantization group")
    yield _plugin(options, _KV, _KV_PRECISIONS, "KV precision")


def _threads(options: Mapping[str, Any]) -> list[Change]:
    num_all = os.cpu_count() or 1
    present = options.get("num_threads", 0) or num_all
    num_physical = psutil.cpu_count(logical=False) or num_all
    others = sorted({num_all, num_physical, max(1, num_all - 1)} - {present}, reverse=True)
    return [Change(f"{num} threads", {"num_threads": num}) for num in others]


def _plugin(
    options: Mapping[str, Any], name: str, values: tuple[str, ...], what: str
) -> list[Change]:
    present = options.get("plugin", {}).get(name)
    return [
        Change(f"{what} {value}", {"plugin": {name: value}}) for value in values if value != present
    ]
