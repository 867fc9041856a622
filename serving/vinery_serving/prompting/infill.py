"""Fill in the middle: prompts of code models that generate the text between prefix and suffix.

The markers in a model's vocabulary identify its family. The texts are encoded separately from the
markers, so that no tokenizer merges them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.prompting.tokenizer import Tokenizer

# The positions of the two texts between the markers.
_PREFIX: Final = "{prefix}"
_SUFFIX: Final = "{suffix}"
_TEXTS: Final = re.compile(r"(\{prefix\}|\{suffix\})")

# Markers and texts in their order, and the tokens that end the output beside EOS.
_FAMILIES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    # Qwen Coder, CodeGemma, Granite 4
    (
        "<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>",
        ("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>"),
    ),
    # StarCoder, Granite 3, Stable Code
    (
        "<fim_prefix>{prefix}<fim_suffix>{suffix}<fim_middle>",
        ("<|endoftext|>", "<file_sep>", "<repo_name>"),
    ),
    ("<fim-prefix>{prefix}<fim-suffix>{suffix}<fim-middle>", ("<|endoftext|>",)),  # SantaCoder
    # Code Llama, whose tokens begin with SentencePiece's space
    ("▁<PRE>{prefix}▁<SUF>{suffix}▁<MID>", ("▁<EOT>",)),
    ("<PRE>{prefix}<SUF>{suffix}<MID>", ("<EOT>",)),
    # DeepSeek Coder, whose bars are full-width
    ("<｜fim▁begin｜>{prefix}<｜fim▁hole｜>{suffix}<｜fim▁end｜>", ()),
    ("[SUFFIX]{suffix}[PREFIX]{prefix}", ()),  # Codestral
    ("<[fim-suffix]>{suffix}<[fim-prefix]>{prefix}<[fim-middle]>", ()),  # Seed Coder
    # GLM 4, CodeGeeX
    ("<|code_prefix|>{prefix}<|code_suffix|>{suffix}<|code_middle|>", ("<|endoftext|>",)),
)


@dataclass(frozen=True, slots=True)
class Infill:
    """The layout of one model's prompts. `end_ids` end the output."""

    layout: tuple[str | int, ...]
    end_ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Infill | None:
        """Return the layout for this tokenizer; None when it has no such tokens."""
        for layout, ends in _FAMILIES:
            parts = [
                part if part in (_PREFIX, _SUFFIX) else tokenizer.token_id(part)
                for part in filter(None, _TEXTS.split(layout))
            ]
            known = tuple(part for part in parts if part is not None)
            if len(known) == len(parts):
                end_ids = map(tokenizer.token_id, ends)
                return cls(known, tuple(end for end in end_ids if end is not None))
        return None

    def token_ids(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        texts = {_PREFIX: prefix, _SUFFIX: suffix}
        parts = ([part] if isinstance(part, int) else texts[part] for part in self.layout)
        return [id_ for part in parts for id_ in part]
