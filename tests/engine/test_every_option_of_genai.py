"""Every option of OpenVINO Model Server and of GenAI's scheduler is one of Vinery that acts.

A new release of GenAI with another field fails here until it is an option or has a reason.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import openvino_genai as genai

from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import config_of
from tests.tables import table
from vinery_serving.engine.graph import GraphFeatures
from vinery_serving.engine.options import EngineOptions, parse_options
from vinery_serving.engine.pipeline import _device_properties, _properties, _scheduler
from vinery_serving.models.ovms.sources import OF_MODELS

OPTIONS: Final = tomllib.loads(Path(__file__).with_name("options_of_genai.toml").read_text())
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


def test_every_option_of_the_model_server_and_of_the_scheduler_is_known() -> None:
    counterparts = {each for each in OPTIONS["OF_MODEL_SERVER"].values() if each}
    assert counterparts <= set(EngineOptions.__struct_fields__)
    assert set(OPTIONS["OF_MODEL_SERVER"]) >= OF_MODELS

    groups = {"cache_eviction_config", "sparse_attention_config", "kvcrush_config"}
    tables = "SCHEDULER", "EVICTION", "CRUSH", "SPARSE", "NO_OPTION"
    known = groups.union(*(OPTIONS[name] for name in tables))
    config = genai.CacheEvictionConfig(32, 64, 192, genai.AggregationMode.SUM)
    for each in (genai.SchedulerConfig(), config, config.kvcrush_config):
        assert fields_of(each) <= known
    assert fields_of(genai.SparseAttentionConfig()) == set(OPTIONS["SPARSE"])


@table("field", OPTIONS["SCHEDULER"])
def test_an_option_reaches_the_scheduler(field: str) -> None:
    options: dict[str, Any] = OPTIONS["SCHEDULER"][field]
    if "cache_eviction" in options:
        options = {"cache_eviction": SIZES, "enable_prefix_caching": False}
    assert getattr(scheduler(**options), field) != getattr(genai.SchedulerConfig(), field)


def unchanged(configs: Mapping[str, Any], default: Any) -> list[str]:
    """The fields whose options have not reached their configuration."""
    return [name for name, each in configs.items() if getattr(each, name) == getattr(default, name)]


def test_options_reach_the_eviction_and_the_sparse_attention() -> None:
    default = genai.CacheEvictionConfig(32, 64, 192, genai.AggregationMode.SUM)
    evicting = {field: eviction(**members) for field, members in OPTIONS["EVICTION"].items()}
    crushing = {name: eviction(**each).kvcrush_config for name, each in OPTIONS["CRUSH"].items()}
    sparse = {
        field: scheduler(sparse_attention=members).sparse_attention_config
        for field, members in OPTIONS["SPARSE"].items()
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

    properties = _properties(config, GraphFeatures(), None, has_lookup=True)

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
