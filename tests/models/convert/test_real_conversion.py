"""The real exporter, in the environment whose folder VINERY_TEST_CONVERT_ENVIRONMENT names."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.models.convert.checkpoints import write_checkpoint
from tests.models.convert.fake_environment import borrow_environment
from vinery_serving.models.convert.checkpoint import parse
from vinery_serving.models.convert.conversion import convert


def types_of(folder: Path) -> set[str]:
    """The types of the constants of a graph."""
    graph = ElementTree.parse(folder / "openvino_model.xml")
    constants = graph.iterfind(".//layer[@type='Const']/data")
    return {data.get("element_type", "") for data in constants}


@pytest.mark.parametrize(
    ("model_type", "options", "weights"),
    [
        ("qwen2", {"precision": "int8"}, "u8"),
        ("llama", {"precision": "int4", "group_size": 32, "ratio": 1.0, "sym": True}, "i4"),
        ("qwen2", {"precision": "int4", "group_size": 32, "awq": True}, "u4"),
        ("llama", {"precision": "fp16"}, "f16"),
    ],
)
async def test_a_small_checkpoint_becomes_a_model_that_generates(
    tmp_path: Path, model_type: str, options: dict[str, object], weights: str
) -> None:
    import openvino_genai

    source, output = write_checkpoint(tmp_path / "tiny", model_type), tmp_path / "converted"
    lib = Path(os.environ["VINERY_TEST_CONVERT_ENVIRONMENT"]) / "lib"
    environments = borrow_environment(tmp_path / "environments", lib)
    log = bytearray()
    converted = await convert(
        *(source, output, parse(options), environments), lambda _: None, log.extend
    )
    assert converted["task"] == "text-generation"
    assert weights in types_of(output), log.decode(errors="replace")
    assert (
        "chat_template" in json.loads((output / "tokenizer_config.json").read_text())
        or (output / "chat_template.jinja").is_file()
    )
    pipeline = openvino_genai.LLMPipeline(str(output), "CPU")
    assert pipeline.generate("one two three", max_new_tokens=4, ignore_eos=True) is not None
