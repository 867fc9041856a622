"""The plan of a conversion: line, task and the exporter's arguments."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.models.convert.checkpoints import write_checkpoint
from tests.tables import table
from vinery_serving.models.convert.checkpoint import (
    Checkpoint,
    ConvertError,
    ConvertOptions,
    architecture_of,
    architectures,
    line_named,
    lines,
    parse,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("plan") / "tiny")


def test_every_architecture_has_a_line_of_one_version_of_each_package() -> None:
    wanted = {"qwen2": "5.0", "qwen2_5_vl": "5.0", "qwen3_5": "5.2", "gemma4": "5.5"}
    wanted |= {"internlm2": "4.57", "phi3_v": "4.53", "minicpmo": "4.51"}
    assert {name: architecture_of(name).line.name for name in wanted} == wanted
    assert all(each.tasks for each in architectures().values())

    for line in lines().values():
        names = [package.partition("==")[0] for package in (line.torch, *line.packages)]
        assert all("==" in package for package in (line.torch, *line.packages))
        assert len(names) == len(set(names))
        assert all(
            re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", each) for each in line.packages
        )
        assert {"transformers", "optimum-intel", "nncf", "openvino"} <= set(names)
        assert "torchvision" not in names
    for line in lines().values():
        pinned = {package.partition(" ")[0] for package in line.packages}
        assert f"openvino=={version('openvino')}" in pinned
        assert f"openvino-tokenizers=={version('openvino-tokenizers')}" in pinned

    assert len({line.digest for line in lines().values()}) == len(lines())


def test_what_is_unknown_is_refused_with_what_is_known(folder: Path) -> None:
    with pytest.raises(ConvertError, match=r"no conversion of the architecture qwen9\..*nearest"):
        architecture_of("qwen9")
    with pytest.raises(ConvertError, match=r"no environment 3\.0\. There are 5\.0, 4\.57"):
        line_named("3.0")
    with pytest.raises(ConvertError, match="qwen2 cannot be converted for the task image-text"):
        Checkpoint.read(folder, "image-text-to-text")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        *((None, "There is no folder"), ({}, "has no config.json")),
        ({"config.json": "{"}, "is broken JSON"),
        ({"config.json": "[]"}, "must hold a JSON object"),
        ({"config.json": '{"a": 1}'}, "names no model_type"),
        ({"config.json": '{"model_type": "qwen2"}'}, "has no weights"),
        ({"openvino_model.xml": "", "config.json": "{}"}, "OpenVINO model already"),
        (
            {"config.json": '{"model_type": "qwen2"}', "model.safetensors": "weights"},
            "Choose a task: text-generation, feature-extraction",
        ),
    ],
)
def test_a_folder_that_is_no_checkpoint_is_refused(
    tmp_path: Path, files: dict[str, str] | None, message: str
) -> None:
    folder = tmp_path / "checkpoint"
    if files is not None:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    with pytest.raises(ConvertError, match=message):
        Checkpoint.read(folder)


def test_arguments_are_those_of_the_options_and_trust_no_code(folder: Path, tmp_path: Path) -> None:
    options = parse({"precision": "int4", "group_size": -1, "ratio": 0.8, "sym": True})
    words = options.arguments(Checkpoint.read(folder), tmp_path / "out")
    assert words[:6] == [
        *("--model", str(folder), "--task", "text-generation-with-past"),
        *("--library", "transformers"),
    ]
    assert words[6:] == [
        *("--weight-format", "int4", "--group-size-fallback", "adjust"),
        *("--group-size=-1", "--ratio=0.8", "--sym", str(tmp_path / "out")),
    ]
    checkpoint = Checkpoint.read(folder)
    assert "--trust-remote-code" not in ConvertOptions().arguments(checkpoint, tmp_path)
    trusting = parse({"trust_remote_code": True})
    assert "--trust-remote-code" in trusting.arguments(checkpoint, tmp_path)


@table(
    "values, message",
    [
        *(({"precision": "int2"}, "int2"), ({"speed": 1}, "There is no option speed")),
        ({"precision": "int8", "ratio": 0.5}, "ratio is for int4 and not for int8"),
        ({"precision": "fp16", "sym": True}, "sym is for int8 and int4"),
        ({"precision": "int4", "group_size": 0}, "group_size must be -1 or positive"),
        ({"precision": "int4", "ratio": 1.5}, "ratio must be from 0 to 1"),
        ({"memory_limit_mb": -1}, "memory_limit_mb must not be negative"),
        ({"task": "poetry"}, "poetry"),
    ],
)
def test_options_that_cannot_be_met_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConvertError, match=message):
        parse(values)
