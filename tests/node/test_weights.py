"""Weights files that are missing or cut are found without loading them."""

import shutil
from pathlib import Path

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.tables import table
from vinery_serving.node.weights import UnusableWeights, check_weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in TINY_CHAT.glob("openvino_*"):
        shutil.copy(file, tmp_path)
    return tmp_path


def cut(file: Path, num_bytes: int) -> None:
    file.write_bytes(file.read_bytes()[:num_bytes])


@pytest.mark.parametrize("name", ["openvino_model.bin", "openvino_tokenizer.bin"])
def test_a_cut_file_is_named_with_both_sizes(folder: Path, name: str) -> None:
    size = (folder / name).stat().st_size
    cut(folder / name, size - 1)

    with pytest.raises(UnusableWeights) as error:
        check_weights(folder)

    assert str(error.value) == (
        f"The weights file {name} is cut: it has {size - 1:,} bytes, and the graph needs {size:,}. "
        "Copy the folder again."
    )


def test_a_whole_or_longer_file_passes_and_a_missing_one_is_named(folder: Path) -> None:
    check_weights(folder)
    with (folder / "openvino_model.bin").open("ab") as weights:
        weights.write(b"padding")
    check_weights(folder)

    (folder / "openvino_detokenizer.bin").unlink()
    with pytest.raises(UnusableWeights, match=r"file openvino_detokenizer\.bin is missing in "):
        check_weights(folder)


@table(
    "text",
    [
        "<net><layers/></net>",  # without constants
        # What is no graph is left to its reader.
        "no graph",
        "<net><layers><layer type='Const'><data offset='x'/>",
    ],
)
def test_some_graphs_need_no_weights(tmp_path: Path, text: str) -> None:
    (tmp_path / "openvino_model.xml").write_text(text)
    check_weights(tmp_path)
