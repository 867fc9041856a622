"""Turns a model of the model server into a model of Vinery, with a line for each option."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from vinery_serving.core.tasks import check_output_format
from vinery_serving.engine.options import EngineOptions
from vinery_serving.models.folder_options import read_apart
from vinery_serving.models.ovms import sources


@dataclass(slots=True)
class Translation:
    """A model in Vinery, and what became of each option."""

    name: str
    folder: Path
    device: str = "CPU"
    options: dict[str, Any] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # with the difference
    lost: list[str] = field(default_factory=list)  # with the reason

    def take(self, ours: str, value: Any, theirs: str) -> None:
        self.options[ours] = value
        self.taken.append(f"{theirs} is the option {ours}: {json.dumps(value)}")

    def change(self, ours: str, value: Any, theirs: str, why: str) -> None:
        self.options[ours] = value
        self.changed.append(f"{theirs} is the option {ours}: {json.dumps(value)}. {why}")

    def lose(self, theirs: str, why: str) -> None:
        self.lost.append(f"{theirs}: {why}")


def read(
    path: Path | None, command: str, roots: sources.Roots
) -> tuple[sources.Found, list[Translation]]:
    """Read a path, or else a command line, in a confined process. Raises `UnreadableSource`."""
    return read_apart(  # a configuration names graphs in any folder
        *(find, path or command, roots),
        answers=tuple[sources.Found, list[Translation]],
        fails=sources.UnreadableSource,
        reads=(Path("/"),),
    )


def find(what: Path | str, roots: sources.Roots) -> tuple[sources.Found, list[Translation]]:
    if isinstance(what, Path):
        found = sources.read_path(what, roots)
    else:
        found = sources.read_command(what, roots)
    return found, [translate(each, roots) for each in found.servables]


def translate(servable: sources.Servable, roots: sources.Roots) -> Translation:
    """Options without a counterpart are in `lost`."""
    name = re.sub(r"[^A-Za-z0-9._:/-]", "-", servable.name).lstrip("._:/-")[:128]
    model = Translation(name or "model", servable.folder)
    if model.name != servable.name:
        model.changed.append(f"the name {servable.name} is {model.name}: names have no other signs")
    given = {name: value for name, value in servable.options.items() if value != ""}
    plugin = _plugin_of(model, given.pop("plugin_config", {}))
    if "max_prompt_len" in given:
        plugin = {"MAX_PROMPT_LEN": given["max_prompt_len"]} | plugin
    for name, value in given.items():
        try:
            _take(model, name, value)
        except (TypeError, ValueError, AttributeError):
            model.lose(name, f"{value!r} is not a value that it can have")
    _take_plugin(model, plugin)
    _take_parsers(model, given)
    _take_draft(model, given, servable.folder, roots)
    _take_generation_config(model, given, servable.folder)
    if servable.task == "chat":
        _settle_prefix_cache(model, given)
    _settle_split_fuse(model)
    return model


# Options that the functions after `_take` read together.
_TOGETHER: Final = (
    *("tool_parser", "reasoning_parser", "draft_models_path", "draft_device"),
    *("draft_cache_size", "draft_max_num_batched_tokens", "generation_config_path"),
    *("draft_eagle3_mode", "max_prompt_len"),
)
_UNKNOWN: Final = "Vinery has no such option. See its guide From OpenVINO Model Server"
_BY_REQUESTS: Final = {
    "truncate": "a request asks for it, by truncate_prompt_tokens",
    "enable_tool_guided_generation": "a request asks for it, by `strict` of a tool or tool_choice",
}
# What Vinery does in any case, by the values that ask for it.
_ALWAYS: Final = {"pipeline_type": ("AUTO", "LM_CB", "VLM_CB"), "chat_template_mode": ("JINJA",)}


def _same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


_NAMES: Final = {
    "max_num_seqs": "max_running",
    "cache_size": "cache_size_gb",
    **_same("max_num_batched_tokens dynamic_split_fuse enable_prefix_caching max_tokens_limit"),
    **_same("kv_cache_precision cache_interval_multiplier model_distribution_policy"),
}
# By the names of messages: the group, and its members by the names of fields.
_GROUPS: Final = {
    "cache_eviction_config": (
        "cache_eviction",
        {
            **_same("start_size recent_size max_cache_size apply_rotation snapkv_window_size"),
            "aggregation_mode": "aggregation",
            "budget": "kvcrush_budget",
            "anchor_point_mode": "kvcrush_anchor",
            "rng_seed": "kvcrush_seed",
        },
    ),
    "sparse_attention_config": (
        "sparse_attention",
        {
            "mode": "mode",
            "num_last_dense_tokens_in_prefill": "num_last_dense_tokens",
            "num_retained_start_tokens_in_cache": "num_start_tokens",
            "num_retained_recent_tokens_in_cache": "num_recent_tokens",
            "xattention_threshold": "threshold",
            "xattention_block_size": "block_size",
            "xattention_stride": "stride",
        },
    ),
}


def _take(model: Translation, name: str, value: Any) -> None:
    """Raises TypeError, ValueError or AttributeError for a value of another kind."""
    match name:
        case "device" | "target_device":
            model.device = str(value)
            model.taken.append(f"{name} is the device {value}")
        case "best_of_limit":
            why = "There it is the first number that is refused, here the largest that is accepted."
            model.change(name, max(1, int(value) - 1), name, why)
        case "pooling":
            model.take(name, re.sub("^last$", "last_token", value.lower()), name)
        case "normalize_embeddings":
            model.take("normalize", "always" if _plain(value) else "never", name)
        case _ if name in _ALWAYS:
            if str(value).upper() in _ALWAYS[name]:
                model.taken.append(f"{name} {value}: as in Vinery")
            else:
                model.lose(name, f"Vinery has {_ALWAYS[name][-1]}, and not {value}")
        case _ if name in _NAMES:
            model.take(_NAMES[name], _plain(value), name)
        case _ if name in _GROUPS:
            _take_group(model, name, value)
        case _ if name not in _TOGETHER:
            model.lose(name, _BY_REQUESTS.get(name, _UNKNOWN))


def _take_group(model: Translation, name: str, value: Mapping[str, Any]) -> None:
    group, names = _GROUPS[name]
    given = {**value, **value.get("kv_crush_config", {})}
    given.pop("kv_crush_config", None)
    for each in given.keys() - names.keys():
        model.lose(f"{name}.{each}", _UNKNOWN)
    members = {ours: _plain(given[theirs]) for theirs, ours in names.items() if theirs in given}
    model.take(group, members, name)


def _plain(value: Any) -> Any:
    """Return a value as options have it: names in lower case, and switches of any spelling."""
    text = str(value).lower()
    known = {"true": True, "yes": True, "false": False, "no": False}
    return known.get(text, text) if isinstance(value, str) else value


def _plugin_of(model: Translation, given: Any) -> dict[str, Any]:
    try:
        plugin = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        plugin = None
    if not isinstance(plugin, dict):
        model.lose("plugin_config", "it is not a JSON object")
        return {}
    return plugin


def _take_plugin(model: Translation, plugin: Mapping[str, Any]) -> None:
    """Properties that are options of Vinery become these; the others go to the plugin."""
    left: dict[str, Any] = {}
    for name, value in plugin.items():
        theirs = f"plugin_config {name}"
        if name == "prompt_lookup":
            model.take("prompt_lookup", _plain(value), theirs)
        elif name in ("KV_CACHE_PRECISION", "MODEL_DISTRIBUTION_POLICY"):
            model.take(name.lower(), str(value).lower(), theirs)
        elif name == "INFERENCE_NUM_THREADS":
            model.take("num_threads", value, theirs)
        elif name == "CACHE_DIR":
            model.lose(theirs, "compiled models are kept in the home")
        elif name not in ("MAX_PROMPT_LEN", "MIN_RESPONSE_LEN"):
            left[name] = value
        elif model.device.partition(".")[0] != "NPU":
            model.lose(theirs, "it is for an NPU; max_context limits prompt and answer together")
        elif str(value).isdecimal():
            model.take(name.lower(), int(value), theirs)
        else:
            model.lose(theirs, f"{value!r} is not a value that it can have")
    if left:
        model.take("plugin", left, "plugin_config")


# The names of parsers, where Vinery's format has another.
_FORMATS: Final = {"hermes3": "hermes", "qwen3": "think"}


def _take_parsers(model: Translation, given: Mapping[str, Any]) -> None:
    names = [given[each] for each in ("reasoning_parser", "tool_parser") if each in given]
    formats = list(dict.fromkeys(_FORMATS.get(str(name), str(name)) for name in names))
    if not formats:
        return
    wanted = [each for each in formats if each != "none"] or ["none"]
    try:
        model.take("output_format", check_output_format("+".join(wanted)), "parsers")
    except ValueError:
        parsers = " and ".join(map(str, names))
        model.lose("parsers", f"there is no format {parsers}; it is detected from the template")


def _take_draft(
    model: Translation, given: Mapping[str, Any], folder: Path, roots: sources.Roots
) -> None:
    if "draft_models_path" not in given:
        return
    path = roots.resolve(str(given["draft_models_path"]), folder)
    is_head = _plain(given.get("draft_eagle3_mode", False))
    model.take("eagle3_head" if is_head else "draft_model", str(path), "draft_models_path")
    if "draft_device" in given:
        model.take("draft_device", str(given["draft_device"]), "draft_device")
    named = {
        "cache_size_gb": "draft_cache_size",
        "max_num_batched_tokens": "draft_max_num_batched_tokens",
    }
    if own := {ours: given[name] for ours, name in named.items() if name in given}:
        model.take("draft_scheduler", own, ", ".join(named.values()))


def _take_generation_config(model: Translation, given: Mapping[str, Any], folder: Path) -> None:
    """A file beside the model's own generation_config.json becomes defaults."""
    if "generation_config_path" not in given:
        return
    path = folder / str(given["generation_config_path"])
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        model.lose("generation_config_path", f"{path} cannot be read: {error}")
        return
    names = {name: name for name in _SAMPLED.split()} | {"max_new_tokens": "max_tokens"}
    defaults = {ours: values[theirs] for theirs, ours in names.items() if theirs in values}
    if values.get("do_sample") is False:
        defaults["temperature"] = 0
    model.change("defaults", defaults, "generation_config_path", "Its other values stay out.")


_SAMPLED: Final = (
    "temperature top_p top_k min_p repetition_penalty presence_penalty frequency_penalty"
)


def _settle_prefix_cache(model: Translation, given: Mapping[str, Any]) -> None:
    """The prefix cache is off by default in graphs, and on in Vinery."""
    if "enable_prefix_caching" in given:
        return
    if "cache_eviction" in model.options:
        model.options["enable_prefix_caching"] = False
        model.taken.append("enable_prefix_caching is off, as cache_eviction_config needs it")
    else:
        model.changed.append(
            "enable_prefix_caching is on: graphs have it off by default. Answers stay the same."
        )


def _settle_split_fuse(model: Translation) -> None:
    """Without split fuse, a step must have room for a token of each answer."""
    options = EngineOptions()
    if model.options.get("dynamic_split_fuse", True):
        return
    num_tokens = model.options.get("max_num_batched_tokens", options.max_num_batched_tokens)
    model.changed.append(
        f"dynamic_split_fuse is off: prompt and answer together have at most {num_tokens} tokens"
    )
    if model.options.get("max_running", options.max_running) > num_tokens:
        why = "A step has at most max_num_batched_tokens."
        model.change("max_running", num_tokens, "max_num_seqs", why)


# What does the same as flags of the server. Flags of models are options above.
_FLAGS: Final = {
    "rest_port": "set VINERY_PORT",
    "rest_bind_address": "set VINERY_HOST",
    "rest_workers": "requests do not occupy threads; VINERY_WEB_WORKERS sets the processes",
    "api_key_file": "each client has a key of its own: vinery key create",
    "metrics_enable": "metrics are always on, at /metrics",
    "log_level": "set VINERY_LOG_LEVEL",
    "cache_dir": "compiled models are kept in the home",
}
_USED: Final = (
    *("config_path", "model_name", "model_path", "model_repository_path", "source_model"),
    *("task", "allowed_media_domains", "allowed_local_media_path"),
)


def lost_flags(flags: Mapping[str, str], of_models: frozenset[str]) -> Iterator[str]:
    """Yield a line for each flag of the server that is not an option of its models."""
    for name in flags:
        if name not in _USED and name not in of_models:
            yield f"--{name}: {_FLAGS.get(name, _UNKNOWN)}"
