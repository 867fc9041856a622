"""Random models of other vision families, a few hundred kilobytes each, for the engine's tests.

    cd models && python -m training.vision.families ../tests/engine/families

Their weights are large, so that pictures which differ have answers that differ. LLaVA-NeXT and
InternVL have the same graphs as LLaVA here: the tests change the folder's JSON files.
"""

import lzma
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from optimum.exporters.openvino import main_export
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3ImageProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from training.quantisation import quantise

SPECIAL_TOKENS: Final = (
    "<pad>",
    "<bos>",
    "<eos>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<image_soft_token>",
    "<end_of_image>",
    "<image>",
    "<img>",
    "<IMG_CONTEXT>",
    "</img>",
)
# Gemma's vocabulary has them as one token.
MERGES: Final = (("Ċ", "Ċ"), ("ĊĊ", "Ċ"))
WEIGHT_DEVIATION: Final = 0.25
KEPT_FILES: Final = ("openvino_*", "config.json", "preprocessor_config.json", "tokenizer*.json")


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes and line breaks."""
    names = (*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ", "ĊĊĊ")
    bare = Tokenizer(models.BPE({name: id_ for id_, name in enumerate(names)}, list(MERGES)))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens(list(SPECIAL_TOKENS))
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )


def gemma3(vocab_size: int) -> tuple[PreTrainedModel, Any]:
    """Return a model of pictures of 112 pixels and 16 tokens, and their processor."""
    config = Gemma3Config(
        text_config={
            **_text(vocab_size),
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 64,
            "sliding_window_pattern": 2,
        },
        vision_config=_vision(112),
        mm_tokens_per_image=16,
        boi_token_index=SPECIAL_TOKENS.index("<start_of_image>"),
        image_token_index=SPECIAL_TOKENS.index("<image_soft_token>"),
        eoi_token_index=SPECIAL_TOKENS.index("<end_of_image>"),
    )
    processor = Gemma3ImageProcessor(
        size={"height": 112, "width": 112}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    return Gemma3ForConditionalGeneration(config), processor


def llava(vocab_size: int) -> tuple[PreTrainedModel, Any]:
    """Return a model of pictures of 56 pixels and 16 tokens, and their processor."""
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", "projection_dim": 16, **_vision(56)},
        text_config={"model_type": "llama", **_text(vocab_size)},
        image_token_index=SPECIAL_TOKENS.index("<image>"),
        image_seq_length=16,
    )
    processor = CLIPImageProcessor(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
    )
    return LlavaForConditionalGeneration(config), processor


FAMILIES: Final[Mapping[str, Callable[[int], tuple[PreTrainedModel, Any]]]] = {
    "gemma3": gemma3,
    "llava": llava,
}


def _text(vocab_size: int) -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": vocab_size,
        "max_position_embeddings": 4096,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def _vision(side: int) -> dict[str, Any]:
    return {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": side,
        "patch_size": 14,
    }


def write(name: str, target: Path) -> None:
    """Write the archive of one family into the folder `target`."""
    torch.manual_seed(0)
    words = tokenizer()
    model, processor = FAMILIES[name](len(words))
    for weights in model.parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, WEIGHT_DEVIATION)
    with tempfile.TemporaryDirectory() as scratch:
        prepared, exported = Path(scratch, "prepared"), Path(scratch, "exported")
        for part in (model, words, processor):
            part.save_pretrained(prepared)
        main_export(
            str(prepared), output=exported, task="image-text-to-text", convert_tokenizer=True
        )
        for path in sorted(exported.glob("openvino_*_model.xml")):
            quantise(path)
        _pack(exported, target / f"{name}.tar.xz")


def _pack(folder: Path, target: Path) -> None:
    """Write files without their times and owners, so that the archive is always the same."""
    with lzma.open(target, "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted({each for kept in KEPT_FILES for each in folder.glob(kept)}):
            info = tarfile.TarInfo(path.name)
            info.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(info, file)


def main() -> None:
    """Write all archives into the folder that is the first argument."""
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in FAMILIES:
        write(name, target)


if __name__ == "__main__":
    main()
