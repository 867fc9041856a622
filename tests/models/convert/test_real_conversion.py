"""The real exporter, in the environment whose folder VINERY_TEST_CONVERT_ENVIRONMENT names."""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.models.convert.checkpoints import make_checkpoint
from tests.models.convert.fake_environment import borrow_environment
from vinery_serving.models.convert.checkpoint import line_named, parse
from vinery_serving.models.convert.conversion import convert
from vinery_serving.models.convert.environments import python_of


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

    lib = Path(os.environ["VINERY_TEST_CONVERT_ENVIRONMENT"]) / "lib"
    environments, log = borrow_environment(tmp_path / "environments", lib), bytearray()
    environment = environments.find(line_named("5.0"))
    assert environment is not None
    source = make_checkpoint(tmp_path / "tiny", model_type, python_of(environment))
    given = (source, tmp_path / "converted", parse(options), environments)
    converted = await convert(*given, lambda _: None, log.extend)
    assert converted["task"] == "text-generation"
    assert weights in types_of(tmp_path / "converted"), log.decode(errors="replace")
    assert (tmp_path / "converted" / "chat_template.jinja").is_file()
    pipeline = openvino_genai.LLMPipeline(converted["folder"], "CPU")
    assert pipeline.generate("one two three", max_new_tokens=4, ignore_eos=True) is not None
