"""Options that a device or a model does not take are refused where they are set."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.models.rows.conftest import MODELS, TINY_CHAT
from tests.tables import table
from vinery_serving.engine.options import EngineOptions, parse_options
from vinery_serving.models import devices
from vinery_serving.models.devices import Device, DeviceList, check_device_options
from vinery_serving.models.folder_options import check_folder, check_folder_options
from vinery_serving.models.models import ServedModel
from vinery_serving.prompting.folder import UnusableFolder

CPU = Device("CPU", "Intel Core", properties=("NUM_STREAMS", "INFERENCE_PRECISION_HINT"))
GPU = Device("GPU", "Intel Arc", properties=("GPU_HOST_TASK_PRIORITY", "NUM_STREAMS"))
NPU = Device("NPU", "Intel AI Boost", properties=("NPU_TURBO",))
KNOWN = DeviceList((CPU, GPU, NPU), 0.0)
OPTIONS = json.loads(Path(__file__).with_name("device_options.json").read_text())


def check(device: str, known: DeviceList | None = KNOWN, **options: Any) -> None:
    check_device_options(parse_options(options), device, known)


@table("device, options", OPTIONS["taken"])
def test_a_device_takes_its_options(device: str, options: dict[str, Any]) -> None:
    check(device, **options)


@table("device, options, message", OPTIONS["refused"])
def test_what_no_device_takes_is_refused(
    device: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as refusal:
        check(device, **options)

    assert str(refusal.value) == message


@table(
    "folder, options, words",
    [
        ("tiny-vision", {"prompt_lookup": True}, "A vision model cannot have the option prompt_"),
        ("tiny-chat", {"draft_model": "/nowhere"}, "folder /nowhere of draft_model has no open"),
        ("tiny-chat", {"eagle3_head": "/nowhere"}, "folder /nowhere of eagle3_head has no open"),
        ("tiny-chat", {"adapters": [{"path": "/none"}]}, "There is no adapter /none."),
        ("tiny-chat", {"draft_model": "draft"}, "draft_model must be an absolute path"),
        ("tiny-chat", {"eagle3_head": "head"}, "eagle3_head must be an absolute path"),
        ("tiny-chat", {"chat_template": "/no.jinja"}, "There is no file /no.jinja, which the opt"),
        ("tiny-chat", {"chat_template": "{% if %}"}, "The chat template does not compile"),
        ("tiny-chat", {"cache_interval_multiplier": 8}, "is for models with linear attention"),
    ],
)
def test_what_no_model_takes_is_refused(folder: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, UnusableFolder), match=words):
        check_folder_options(parse_options(options), MODELS / folder)


EAGLE = '<net><rt_info><eagle3_mode value="True"/></rt_info></net>'
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
        ("eagle3_head", "<net/>", "{}", "is no EAGLE-3 head: its graph and config.json do not"),
    ],
)
def test_a_folder_of_another_kind_proposes_no_tokens(
    tmp_path: Path, option: str, graph: str, config: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        check_folder_options(
            parse_options({option: head(tmp_path, graph, config)}), MODELS / "tiny-chat"
        )


def test_a_head_is_for_a_model_and_alone_no_model(tmp_path: Path) -> None:
    check_folder_options(parse_options({"eagle3_head": head(tmp_path, EAGLE)}), TINY_CHAT)
    (tmp_path / "openvino_model.bin").touch()
    with pytest.raises(ValueError, match="set the option eagle3_head of its model to it"):
        check_folder(Path(head(tmp_path, EAGLE, '{"model_type": "llama"}')), EngineOptions())


def test_a_draft_model_and_a_model_with_linear_attention_have_their_options(tmp_path: Path) -> None:
    check_folder_options(parse_options({"draft_model": str(MODELS / "tiny-draft")}), TINY_CHAT)

    state = '<data variable_id="cache_params.past.ssm.0" />'
    (tmp_path / "openvino_model.xml").write_text(f"<net>{' ' * (1 << 20)}{state}</net>")

    check_folder_options(parse_options({"cache_interval_multiplier": 8}), tmp_path)


def test_properties_are_accepted_until_those_of_the_device_are_known() -> None:
    check("CPU", None, plugin={"NUM_STREAM": 1})
    check("CPU", DeviceList((Device("CPU", "Intel Core"),), 0.0), plugin={"NUM_STREAM": 1})


@pytest.mark.django_db
def test_the_table_refuses_what_a_device_does_not_take(settings: Any, tmp_path: Path) -> None:
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
