"""A model folder with random weights, laid out as an export by optimum-intel is.

    openvino_model.xml/.bin          the decoder, int8 weights
    openvino_tokenizer.xml/.bin      text to ids, openvino_detokenizer.xml/.bin the way back
    tokenizer.json                   the same tokenizer in the form of Hugging Face
    tokenizer_config.json            special tokens and chat template
    config.json, generation_config.json

`ContinuousBatchingPipeline` itself loads without any tokenizer and then takes token ids only; it
needs the OpenVINO tokenizer for text prompts, native stop strings and grammars. The end of text
must be named somewhere (config, generation config, tokenizer or request), or every request fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openvino
from tokenizers import Tokenizer

from tests.random_models.decoder import decoder
from tests.random_models.plans import ModelPlan
from tests.random_models.tokenizer_graphs import tokenizer_graphs
from tests.random_models.vocabulary import Vocabulary, token_id, train, unprintable_ids


def write_folder(plan: ModelPlan, folder: Path) -> None:
    """Write the model. `folder` must not exist; it appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        unfinished = Path(scratch, folder.name)
        unfinished.mkdir()
        _write_files(plan, unfinished)
        unfinished.rename(folder)


def _write_files(plan: ModelPlan, folder: Path) -> None:
    tokenizer = train(plan.vocabulary)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(plan, tokenizer))
    _write_json(folder / "config.json", _config(plan, tokenizer))
    _write_json(folder / "generation_config.json", _ends(plan.vocabulary, tokenizer))

    graphs = tokenizer_graphs(
        tokenizer, plan.vocabulary, plan.chat_template, plan.shape.max_positions
    )
    for name, graph in zip(("openvino_tokenizer", "openvino_detokenizer"), graphs, strict=True):
        openvino.save_model(graph, folder / f"{name}.xml", compress_to_fp16=False)

    model = decoder(plan.shape, plan.seed, unprintable_ids(tokenizer))
    openvino.save_model(model, folder / "openvino_model.xml")


def _config(plan: ModelPlan, tokenizer: Tokenizer) -> dict[str, Any]:
    shape = plan.shape
    return {
        "architectures": [shape.architecture],
        "model_type": str(shape.family),
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "max_position_embeddings": shape.max_positions,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.rms_epsilon,
        "initializer_range": shape.initial_std,
        "tie_word_embeddings": shape.has_tied_head,
        **_ends(plan.vocabulary, tokenizer),
    }


def _ends(vocabulary: Vocabulary, tokenizer: Tokenizer) -> dict[str, int]:
    ids = {
        "eos_token_id": token_id(tokenizer, vocabulary.end),
        "pad_token_id": token_id(tokenizer, vocabulary.pad),
    }
    if vocabulary.prefix is not None:
        ids["bos_token_id"] = token_id(tokenizer, vocabulary.prefix)
    return ids


def _tokenizer_config(plan: ModelPlan, tokenizer: Tokenizer) -> dict[str, Any]:
    vocabulary = plan.vocabulary
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": plan.shape.max_positions,
        "bos_token": vocabulary.prefix,
        "eos_token": vocabulary.end,
        "pad_token": vocabulary.pad,
        "clean_up_tokenization_spaces": False,
        "chat_template": plan.chat_template,
        "added_tokens_decoder": {
            str(id_): _added_token(token.content)
            for id_, token in sorted(tokenizer.get_added_tokens_decoder().items())
        },
    }


def _added_token(content: str) -> dict[str, Any]:
    return {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
