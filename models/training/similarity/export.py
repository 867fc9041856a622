"""Turns trained networks into the folders that ship: int8 OpenVINO graphs and their settings."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from optimum.exporters.openvino import main_export

from training.quantisation import quantise
from training.similarity.network import MAX_TOKENS

TASKS: Final = {"tiny-embed": "feature-extraction", "tiny-rerank": "text-classification"}
FILE_MODE: Final = 0o644

# As sentence-transformers stores how the states become a vector.
_MODULES: Final = [
    {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for idx, (path, kind) in enumerate(
        (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    )
]


def export(name: str, trained: Path, folder: Path) -> None:
    """Write the model to `folder`, replacing what was there."""
    with tempfile.TemporaryDirectory() as scratch:
        exported = Path(scratch, "exported")
        main_export(
            str(trained),
            output=exported,
            task=TASKS[name],
            library_name="transformers",
            convert_tokenizer=True,
        )
        quantise(exported / "openvino_model.xml")
        if name == "tiny-embed":
            _write_pooling(exported)
        for path in exported.glob("openvino_detokenizer.*"):
            path.unlink()
        for path in exported.rglob("*"):
            if path.is_file():
                path.chmod(FILE_MODE)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(exported, folder)


def _write_pooling(folder: Path) -> None:
    hidden: int = json.loads((folder / "config.json").read_text())["hidden_size"]
    (folder / "1_Pooling").mkdir()
    _write(folder / "modules.json", _MODULES)
    _write(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True},
    )
    _write(
        folder / "sentence_bert_config.json",
        {"max_seq_length": MAX_TOKENS, "do_lower_case": False},
    )


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
