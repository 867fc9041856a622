"""Every option of OpenVINO Model Server and of GenAI's scheduler is one of Vinery that acts.

A new release of GenAI with another field fails here until it is an option or has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import openvino_genai as genai

from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import config_of
from tests.tables import table
from vinery_serving.catalog.ovms.sources import OF_MODELS
from vinery_serving.engine.graph import GraphFeatures
from vinery_serving.engine.option_parsing import parse_options
from vinery_serving.engine.options import EngineOptions
from vinery_serving.engine.pipeline import _device_properties, _properties, _scheduler

# The options of graphs and command lines for text models, and where Vinery has them. None: it has
# no such option, for the reason beside it.
OF_MODEL_SERVER: Final = {
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_running",
    "cache_size": "cache_size_gb",
    "kv_cache_precision": "kv_cache_precision",
    "dynamic_split_fuse": "dynamic_split_fuse",
    "enable_prefix_caching": "enable_prefix_caching",
    "max_tokens_limit": "max_tokens_limit",
    "best_of_limit": "best_of_limit",
    "cache_interval_multiplier": "cache_interval_multiplier",
    "cache_eviction_config": "cache_eviction",
    "sparse_attention_config": "sparse_attention",
    "draft_models_path": "draft_model",
    "draft_device": "draft_device",
    "draft_cache_size": "draft_scheduler",
    "draft_max_num_batched_tokens": "draft_scheduler",
    "draft_eagle3_mode": "eagle3_head",
    "prompt_lookup": "prompt_lookup",
    "max_prompt_len": "max_prompt_len",
    "model_distribution_policy": "model_distribution_policy",
    "tool_parser": "output_format",
    "reasoning_parser": "output_format",
    "plugin_config": "plugin",
    "length of the context": "max_context",
    "device": None,  # a column of the model
    "pipeline_type": None,  # found in the files
    "enable_tool_guided_generation": None,  # a request asks for it
    "chat_template_mode": None,  # always Jinja
    "cache_dir": None,  # always in the home
}
SCHEDULER: Final = {
    "max_num_batched_tokens": {"max_num_batched_tokens": 300},
    "max_num_seqs": {"max_running": 7},
    "cache_size": {"cache_size_gb": 3},
    "dynamic_split_fuse": {"dynamic_split_fuse": False},
    "enable_prefix_caching": {"enable_prefix_caching": True},
    "cache_interval_multiplier": {"cache_interval_multiplier": 16},
    "use_cache_eviction": {"cache_eviction": {}},
    "use_sparse_attention": {"sparse_attention": {}},
}
EVICTION: Final = {
    "aggregation_mode": {"aggregation": "norm_sum"},
    "apply_rotation": {"apply_rotation": True},
    "snapkv_window_size": {"snapkv_window_size": 3},
}
CRUSH: Final = {
    "anchor_point_mode": {"kvcrush_anchor": "mean"},
    "budget": {"kvcrush_budget": 2},
    "rng_seed": {"kvcrush_seed": 5},
}
SPARSE: Final = {
    "mode": {"mode": "xattention"},
    "num_last_dense_tokens_in_prefill": {"num_last_dense_tokens": 7},
    "num_retained_recent_tokens_in_cache": {"num_recent_tokens": 64},
    "num_retained_start_tokens_in_cache": {"num_start_tokens": 64},
    "xattention_block_size": {"block_size": 32},
    "xattention_stride": {"stride": 16},
    "xattention_threshold": {"threshold": 0.5},
}
NO_OPTION: Final = {
    "num_kv_blocks",  # cache_size_gb in another unit
    "num_linear_attention_blocks",  # the same for the states of linear attention
    "adaptive_rkv_config",  # of an aggregation that Vinery does not offer
}
SIZES: Final = {"start_size": 32, "recent_size": 64, "max_cache_size": 192}


def fields_of(config: Any) -> set[str]:
    names = (each for each in dir(config) if not each.startswith("_"))
    return {each for each in names if not callable(getattr(config, each))}


def scheduler(**options: Any) -> Any:
    parsed = parse_options(options)
    changed = {name: getattr(parsed, name) for name in options}
    return _scheduler(config_of(TINY_CHAT, Path("/"), **changed), parsed.max_num_batched_tokens)


def eviction(**members: Any) -> Any:
    options = {"cache_size_gb": 1, "enable_prefix_caching": False}
    return scheduler(cache_eviction={**SIZES, **members}, **options).cache_eviction_config


def test_every_option_of_the_model_server_has_a_counterpart() -> None:
    assert {each for each in OF_MODEL_SERVER.values() if each} <= set(
        EngineOptions.__struct_fields__
    )
    assert set(OF_MODEL_SERVER) >= OF_MODELS


def test_every_field_of_the_scheduler_is_known() -> None:
    groups = {"cache_eviction_config", "sparse_attention_config", "kvcrush_config"}
    known = {*SCHEDULER, *EVICTION, *CRUSH, *SPARSE, *groups, *NO_OPTION}
    config = genai.CacheEvictionConfig(32, 64, 192, genai.AggregationMode.SUM)
    for each in (genai.SchedulerConfig(), config, config.kvcrush_config):
        assert fields_of(each) <= known
    assert fields_of(genai.SparseAttentionConfig()) == set(SPARSE)


@table("field", SCHEDULER)
def test_an_option_reaches_the_scheduler(field: str) -> None:
    options: dict[str, Any] = SCHEDULER[field]
    if "cache_eviction" in options:
        options = {"cache_eviction": SIZES, "enable_prefix_caching": False}
    assert getattr(scheduler(**options), field) != getattr(genai.SchedulerConfig(), field)


def unchanged(configs: Mapping[str, Any], default: Any) -> list[str]:
    """The fields whose options have not reached their configuration."""
    return [name for name, each in configs.items() if getattr(each, name) == getattr(default, name)]


def test_options_reach_the_eviction_and_the_sparse_attention() -> None:
    default = genai.CacheEvictionConfig(32, 64, 192, genai.AggregationMode.SUM)
    evicting = {field: eviction(**members) for field, members in EVICTION.items()}
    crushing = {field: eviction(**members).kvcrush_config for field, members in CRUSH.items()}
    sparse = {
        field: scheduler(sparse_attention=members).sparse_attention_config
        for field, members in SPARSE.items()
    }

    assert unchanged(evicting, default) == []
    assert unchanged(crushing, genai.KVCrushConfig()) == []
    assert unchanged(sparse, genai.SparseAttentionConfig()) == []
    for each in evicting.values():
        sizes = each.get_start_size(), each.get_recent_size(), each.get_max_cache_size()
        assert sizes == (32, 64, 192)


def test_options_of_devices_are_properties() -> None:
    config = config_of(
        TINY_CHAT,
        Path("/"),
        kv_cache_precision="u8",
        model_distribution_policy="tensor_parallel",
        max_prompt_len=2048,
        min_response_len=256,
        prompt_lookup=True,
        plugin={"GENERATE_HINT": "BEST_PERF"},
    )

    properties = _properties(config, GraphFeatures(), None)

    assert properties == properties | {
        "INFERENCE_NUM_THREADS": 1,
        "KV_CACHE_PRECISION": "u8",
        "MODEL_DISTRIBUTION_POLICY": "TENSOR_PARALLEL",
        "MAX_PROMPT_LEN": 2048,
        "MIN_RESPONSE_LEN": 256,
        "prompt_lookup": True,
        "GENERATE_HINT": "BEST_PERF",
    }
    plain = _device_properties(config_of(TINY_CHAT, Path("/")), "NPU")
    assert set(plain) == {"CACHE_DIR"}
