"""Small tokenizers like those of sentencepiece, which write a sign for the space.

Each drops or keeps the first space of a text like the family of models in its name.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from tests.prompting.builders import a_copy_of_the_model

SPACE = "\u2581"
START, END = "<s>", "</s>"
_WORDS = ("The", "Paris", "is", "a", "of", "in", "Par", "é")
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_SPACES = (SPACE, SPACE * 2)
_PIECES = (*_SPACES, *(f"{SPACE}{word}" for word in _WORDS), *_WORDS, *"TheParisofn.,\n")
VOCABULARY: Mapping[str, int] = MappingProxyType(
    {
        piece: id_
        for id_, piece in enumerate(dict.fromkeys(("<unk>", START, END, *_BYTES, *_PIECES)))
    }
)


def llama2() -> Tokenizer:
    """A space is put before every text, and the first of an answer dropped."""
    tokenizer = _unigram()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = decoders.Sequence([*_DECODING, decoders.Strip(" ", 1, 0)])
    return tokenizer


def metaspace() -> Tokenizer:
    """The same by a pre-tokenizer that cuts texts into words."""
    tokenizer = _unigram()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


def gemma() -> Tokenizer:
    """Nothing is put before a text or dropped; runs of spaces are tokens on their own."""
    tokenizer = _unigram()
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.decoder = decoders.Sequence(_DECODING)
    tokenizer.add_tokens([AddedToken(SPACE * 2, normalized=False)])
    return tokenizer


KINDS: Mapping[str, Callable[[], Tokenizer]] = MappingProxyType(
    {"llama2": llama2, "metaspace": metaspace, "gemma": gemma}
)
_DECODING = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]


def _unigram() -> Tokenizer:
    pieces = [(piece, -float(10 - min(9, len(piece)))) for piece in VOCABULARY]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.add_special_tokens([START, END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, VOCABULARY[START])]
    )
    return tokenizer


def a_model_folder(path: Path, tokenizer: Tokenizer) -> Path:
    """The reference model with another tokenizer."""
    shutil.rmtree(path, ignore_errors=True)
    a_copy_of_the_model(path, without=("openvino_tokenizer*", "openvino_detokenizer*"))
    tokenizer.save(str(path / "tokenizer.json"))
    named = {"bos_token": START, "eos_token": END}
    (path / "tokenizer_config.json").write_text(json.dumps(named))
    (path / "special_tokens_map.json").write_text("{}")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": VOCABULARY[END]}))
    return path
