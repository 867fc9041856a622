"""Which tokenizers encode small texts where no process may be killed."""

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from tests.tables import table
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.tokenizer import check_decoder, is_quick

_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama 3": rf"{_ENDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",
    "Qwen 3": rf"{_ENDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",
}


def _splitting(*patterns: str) -> Tokenizer:
    raw = Tokenizer(BPE())
    splits = [pre_tokenizers.Split(Regex(each), "isolated") for each in patterns]
    raw.pre_tokenizer = pre_tokenizers.Sequence(splits)
    return raw


@table("pattern", KNOWN.values())
def test_the_patterns_of_models_are_known(pattern):
    assert is_quick(_splitting(pattern))


@table(
    "patterns",
    [
        *([r"(a+)+$"], [r"(a|a)*b"], ["a?" * 30 + "a" * 30], [r"\p{L}{1,9}+b"]),
        # Oniguruma repeats a counted repetition.
        *(["a{1}?" * 30 + "a" * 30], [r"\s+$"], [r"[a-z]+"], [r"\s+"] * 17),
    ],
)
def test_other_patterns_are_not(patterns):
    assert not is_quick(_splitting(*patterns))


@table(
    "normalizer, quick",
    [
        (normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("_")]), True),
        (normalizers.Replace(" ", "_"), True),
        (normalizers.Replace("a", "aa"), False),
        (normalizers.Replace(Regex("a"), "b"), False),
        (normalizers.Prepend("_" * 9), False),
        (normalizers.Sequence([normalizers.NFC()] * 17), False),
    ],
)
def test_a_normalizer_is_quick_unless_it_may_take_long_or_write_much(normalizer, quick):
    raw = Tokenizer(BPE())
    raw.normalizer = normalizer
    assert is_quick(raw) is quick


def test_wordpiece_is_quick_with_short_words():
    assert is_quick(Tokenizer(WordPiece({"a": 0}, unk_token="a")))
    long = WordPiece({"a": 0}, unk_token="a", max_input_chars_per_word=9999)
    assert not is_quick(Tokenizer(long))


@table(
    "decoder",
    [
        decoders.Replace("a", "aa"),
        decoders.Replace(Regex("a"), "b"),
        decoders.Sequence([decoders.Fuse()] * 9999),
    ],
)
def test_a_decoder_that_may_write_more_than_any_model_is_refused(decoder):
    raw = Tokenizer(BPE())
    raw.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Replace("_", " ")])
    check_decoder(raw)
    raw.decoder = decoder
    with pytest.raises(UnusableFolder):
        check_decoder(raw)
