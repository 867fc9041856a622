"""Turns trained networks into the folders that ship: int8 OpenVINO graphs and their settings."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import openvino as ov
import torch
from openvino_tokenizers import convert_tokenizer
from optimum.exporters.openvino import main_export
from transformers import PreTrainedTokenizerFast

from training.quantisation import quantise
from training.similarity.fitting import MAX_TOKENS, PairScorer

FILE_MODE: Final = 0o644

# As sentence-transformers stores how the states become a vector.
_MODULES: Final = [
    {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for idx, (path, kind) in enumerate(
        (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    )
]


def export_embedder(trained: Path, folder: Path) -> None:
    """Write tiny-embed to `folder`, replacing what was there."""
    with tempfile.TemporaryDirectory() as scratch:
        exported = Path(scratch, "exported")
        main_export(
            str(trained),
            output=exported,
            task="feature-extraction",
            library_name="transformers",
            convert_tokenizer=True,
        )
        _write_pooling(exported)
        _finish(exported, folder)


def export_reranker(trained: Path, folder: Path) -> None:
    """Write tiny-rerank to `folder`, replacing what was there."""
    with tempfile.TemporaryDirectory() as scratch:
        exported = Path(scratch, "exported")
        exported.mkdir()
        pair = torch.tensor([[2, 5, 3, 6, 3]])
        example = {
            "input_ids": pair,
            "attention_mask": torch.ones_like(pair),
            "token_type_ids": torch.tensor([[0, 0, 0, 1, 1]]),
        }
        graph = ov.convert_model(PairScorer(trained).eval(), example_input=example)
        for given, name in zip(graph.inputs, example, strict=True):
            given.get_tensor().set_names({name})
            given.get_node().set_partial_shape(ov.PartialShape([-1, -1]))
            given.get_node().set_element_type(ov.Type.i64)
        graph.outputs[0].get_tensor().set_names({"logits"})
        graph.validate_nodes_and_infer_types()
        ov.save_model(graph, exported / "openvino_model.xml")
        tokenizer = PreTrainedTokenizerFast.from_pretrained(trained)
        tokenizer.save_pretrained(exported)
        ov.save_model(convert_tokenizer(tokenizer), exported / "openvino_tokenizer.xml")
        config = json.loads((trained / "config.json").read_text(encoding="utf-8"))
        labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        kind = {"architectures": ["BertForSequenceClassification"]}
        _write(exported / "config.json", config | kind | labels)
        _finish(exported, folder)


def _finish(exported: Path, folder: Path) -> None:
    """Store int8 weights, remove what has no use, and make every file an ordinary one."""
    quantise(exported / "openvino_model.xml")
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
        folder / "sentence_bert_config.json", {"max_seq_length": MAX_TOKENS, "do_lower_case": False}
    )


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
