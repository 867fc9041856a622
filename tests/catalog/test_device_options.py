"""Options that a device or a model does not take are refused where they are set."""

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.catalog.conftest import MODELS, TINY_CHAT
from tests.tables import table
from vinery_serving.catalog import devices
from vinery_serving.catalog.device_options import check_device_options
from vinery_serving.catalog.devices import Device, DeviceList
from vinery_serving.catalog.folder_options import check_folder_options
from vinery_serving.catalog.models import ServedModel
from vinery_serving.catalog.tasks import check_folder
from vinery_serving.engine.option_parsing import parse_options

CPU = Device("CPU", "Intel Core", properties=("NUM_STREAMS", "INFERENCE_PRECISION_HINT"))
GPU = Device("GPU", "Intel Arc", properties=("GPU_HOST_TASK_PRIORITY", "NUM_STREAMS"))
NPU = Device("NPU", "Intel AI Boost", properties=("NPU_TURBO",))
KNOWN = DeviceList((CPU, GPU, NPU), 0.0)
EVICTION = {"start_size": 48, "recent_size": 64, "max_cache_size": 192}


def check(device: str, known: DeviceList | None = KNOWN, **options: Any) -> None:
    check_device_options(parse_options(options), device, known)


@table(
    "device, options",
    [
        ("CPU", {"kv_cache_precision": "u4", "num_threads": 2}),
        ("GPU.0", {"kv_cache_precision": "i8"}),
        ("AUTO:GPU,CPU", {"kv_cache_precision": "u8"}),
        ("AUTO", {"kv_cache_precision": "u8", "plugin": {"ANYTHING": 1}}),
        ("CPU", {"model_distribution_policy": "tensor_parallel"}),
        ("HETERO:GPU,CPU", {"model_distribution_policy": "pipeline_parallel"}),
        ("GPU", {"cache_eviction": EVICTION, "enable_prefix_caching": False}),
        ("GPU", {"plugin": {"GPU_HOST_TASK_PRIORITY": "LOW", "CACHE_MODE": "OPTIMIZE_SIZE"}}),
        ("HETERO:GPU,CPU", {"plugin": {"INFERENCE_PRECISION_HINT": "f32"}}),
        ("GPU", {"draft_model": "/m", "draft_device": "CPU", "num_threads": 2}),
        ("NPU", {"max_prompt_len": 2048, "min_response_len": 256}),
        ("NPU", {"plugin": {"GENERATE_HINT": "BEST_PERF", "NPU_TURBO": True}}),
    ],
)
def test_a_device_takes_its_options(device: str, options: dict[str, Any]) -> None:
    check(device, **options)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "CPU",
        {"kv_cache_precision": "i8"},
        "kv_cache_precision cannot be i8 on CPU, which takes u8, u4, u3, f16, bf16, f32.",
    ),
    (
        "AUTO:GPU,CPU",
        {"kv_cache_precision": "f32"},
        "kv_cache_precision cannot be f32 on GPU, which takes u8, i8, u4, i4, f16.",
    ),
    (
        "NPU",
        {"kv_cache_precision": "u8"},
        "kv_cache_precision is for CPU and GPU, and NPU has NPU. Leave it out.",
    ),
    (
        "GPU",
        {"model_distribution_policy": "tensor_parallel"},
        "model_distribution_policy can be tensor_parallel only with the device CPU, not with GPU.",
    ),
    (
        "CPU",
        {"model_distribution_policy": "pipeline_parallel"},
        "model_distribution_policy can be pipeline_parallel only with HETERO, not with CPU.",
    ),
    ("GPU", {"num_threads": 4}, "num_threads is for the device CPU, not for GPU. Leave it out."),
    (
        "CPU",
        {"max_prompt_len": 9},
        "max_prompt_len is for the device NPU, not for CPU. Leave it out.",
    ),
    (
        *("AUTO:NPU,CPU", {"min_response_len": 9}),
        "min_response_len is for the device NPU, not for AUTO:NPU,CPU. Leave it out.",
    ),
    (
        *("NPU", {"plugin": {"MAX_PROMPT_LEN": 9}}),
        "plugin cannot set MAX_PROMPT_LEN: use max_prompt_len.",
    ),
    (
        *("GPU", {"plugin": {"GENERATE_HINT": "BEST_PERF"}}),
        "plugin: GPU has no property GENERATE_HINT. `vinery devices --json` lists those that it "
        "has.",
    ),
    (
        "CPU",
        {"cache_eviction": EVICTION, "enable_prefix_caching": False},
        "cache_eviction: on CPU, start_size must be a multiple of 32, not 48.",
    ),
    (
        "CPU",
        {"plugin": {"NUM_STREAM": 1}},
        "plugin: CPU has no property NUM_STREAM. Did you mean NUM_STREAMS?",
    ),
    (
        "CPU",
        {"plugin": {"GPU_HOST_TASK_PRIORITY": "LOW"}},
        "plugin: CPU has no property GPU_HOST_TASK_PRIORITY. `vinery devices --json` lists those "
        "that it has.",
    ),
    (
        "CPU",
        {"plugin": {"draft_model": "/m"}},
        "plugin cannot set draft_model: use draft_model or eagle3_head.",
    ),
    (
        "CPU",
        {"draft_model": "/m", "draft_device": "MULTI:CPU"},
        "draft_device: OpenVINO GenAI cannot run a model on MULTI. Write AUTO:CPU to let OpenVINO "
        "choose a device, or serve the model once for each.",
    ),
]


@table("device, options, message", REFUSED)
def test_an_option_that_a_device_does_not_take_is_refused(
    device: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as refusal:
        check(device, **options)

    assert str(refusal.value) == message


def test_properties_are_accepted_until_those_of_the_device_are_known() -> None:
    check("CPU", None, plugin={"NUM_STREAM": 1})
    check("CPU", DeviceList((Device("CPU", "Intel Core"),), 0.0), plugin={"NUM_STREAM": 1})


@table(
    "folder, options, words",
    [
        ("tiny-vision", {"prompt_lookup": True}, "A vision model cannot have the option prompt_"),
        (
            "tiny-vision",
            {"sparse_attention": {}},
            "A vision model cannot have the option sparse_attention",
        ),
        ("tiny-chat", {"draft_model": "/nowhere"}, "folder /nowhere of draft_model has no open"),
        ("tiny-chat", {"eagle3_head": "/nowhere"}, "folder /nowhere of eagle3_head has no open"),
        ("tiny-vision", {"eagle3_head": "/nowhere"}, "cannot have the option eagle3_head"),
        ("tiny-chat", {"adapters": [{"path": "/none"}]}, "There is no adapter /none."),
        ("tiny-vision", {"adapters": [{"path": "/none"}]}, "cannot have the option adapters"),
        ("tiny-chat", {"draft_model": "draft"}, "draft_model must be an absolute path"),
        ("tiny-chat", {"chat_template": "/no.jinja"}, "There is no file /no.jinja, which the opt"),
        ("tiny-chat", {"chat_template": "{% if %}"}, "The chat template does not compile"),
        ("tiny-chat", {"cache_interval_multiplier": 8}, "is for models with linear attention"),
    ],
)
def test_an_option_that_a_model_does_not_take_is_refused(
    folder: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        check_folder_options(parse_options(options), MODELS / folder)


EAGLE = '<net><rt_info><eagle3_mode value="True"/></rt_info></net>'
LAYERED = EAGLE.replace("</rt", '<hidden_layers_list value="1 2 3"/></rt')
ARCHITECTURE = '{"architectures": ["LlamaForCausalLMEagle3"]}'


def head(folder: Path, graph: str, config: str = "{}") -> str:
    (folder / "openvino_model.xml").write_text(graph)
    (folder / "config.json").write_text(config)
    return str(folder)


@table(
    "option, graph, config, words",
    [
        ("draft_model", EAGLE, "{}", "is an EAGLE-3 head: set the option eagle3_head to it."),
        ("draft_model", "<net/>", ARCHITECTURE, "is an EAGLE-3 head: set the option eagle3_head"),
        (
            *("draft_model", "<net/>", '{"architectures": ["DFlashDraftModel"]}'),
            "is a DFlash head, which Vinery does not run.",
        ),
        ("eagle3_head", "<net/>", "{}", "is no EAGLE-3 head: its graph and config.json do not"),
        ("eagle3_head", "<net/>", ARCHITECTURE, "has no note eagle3_mode in its graph"),
        ("eagle3_head", EAGLE, "{}", "with 10 layers or more, and config.json names 5."),
    ],
)
def test_a_folder_of_another_kind_proposes_no_tokens(
    tmp_path: Path, option: str, graph: str, config: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        check_folder_options(
            parse_options({option: head(tmp_path, graph, config)}), MODELS / "tiny-chat"
        )


@table("option", ["draft_model", "eagle3_head"])
def test_a_head_needs_a_path_from_the_root(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be an absolute path"):
        check_folder_options(parse_options({option: "head"}), TINY_CHAT)


def test_a_head_alone_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.bin").touch()

    with pytest.raises(ValueError, match="set the option eagle3_head of its model to it"):
        check_folder(head(tmp_path, EAGLE, '{"model_type": "llama"}'))


def test_a_head_is_for_a_model_with_its_layers(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.mkdir()
    head(large, "<net/>", '{"text_config": {"num_hidden_layers": 28}}')

    check_folder_options(parse_options({"eagle3_head": head(tmp_path, LAYERED)}), TINY_CHAT)
    check_folder_options(parse_options({"eagle3_head": head(tmp_path, EAGLE)}), large)


def test_a_small_model_is_a_draft_model() -> None:
    check_folder_options(parse_options({"draft_model": str(MODELS / "tiny-draft")}), TINY_CHAT)


def test_a_model_with_linear_attention_takes_its_option(tmp_path: Path) -> None:
    state = '<data variable_id="cache_params.past.ssm.0" />'
    (tmp_path / "openvino_model.xml").write_text(f"<net>{' ' * (1 << 20)}{state}</net>")

    check_folder_options(parse_options({"cache_interval_multiplier": 8}), tmp_path)


@pytest.mark.django_db
def test_the_table_refuses_what_a_device_or_a_model_does_not_take(
    settings: Any, tmp_path: Path
) -> None:
    settings.VINERY_RUN_DIR = str(tmp_path)
    devices.write(tmp_path, [CPU, GPU])
    model = ServedModel(name="m", folder=str(TINY_CHAT), options={"num_threads": 2})

    model.clean_fields()
    with pytest.raises(ValidationError) as refused:
        model.device = "GPU"
        model.clean_fields(exclude={"options"})

    assert refused.value.message_dict == {
        "device": ["num_threads is for the device CPU, not for GPU. Leave it out."]
    }
