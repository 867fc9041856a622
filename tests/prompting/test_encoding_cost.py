"""Which tokenizers encode small texts where no process may be killed."""

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from tests.tables import table
from vinery_serving.prompting.encoding_cost import check_decoder, is_plain, is_quick
from vinery_serving.prompting.folder import UnusableFolder

# Of GPT-2, Llama 3, Qwen 2, GPT-4o, DeepSeek and others.
KNOWN = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"\s+$",
)


@table("pattern", KNOWN)
def test_the_patterns_of_models_are_plain(pattern):
    assert is_plain(pattern)


@table(
    "pattern",
    [
        *(r"(a+)+$", r"(a|a)*b", r"(a|aa)+$", r"(?:(?:a|a)b){2,}c", r"(a*)*b", r"(\w+\s?)*$"),
        *(r"a*a*a*b", r"a*a*b", r"(.*a){20}", r"(a?){30}a{30}", "a?" * 30 + "a" * 30),
        *(r"(a)\1+", r"(?=(a+))\1*b", r"(?R)", r"\g<0>", r"[[:alpha:]]+", r"[a&&b]+"),
        *(r"a{1,16}+b", "a{1}?" * 30 + "a" * 30, r"\p{L}{1,9}+b"),
        *("a*a*(b)", "(a?)" * 30 + "a{30}", "(a|ab)" * 30 + "c", "(" * 3000 + ")" * 3000),
    ],
)
def test_patterns_that_may_backtrack_long_are_not(pattern):
    assert not is_plain(pattern)


def test_a_tokenizer_is_quick_unless_a_part_of_it_may_take_long_or_write_much():
    raw = Tokenizer(BPE())
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(KNOWN[0]), "isolated")
    assert is_quick(raw)
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex("(a+)+$"), "isolated")])
    assert not is_quick(raw)

    raw = Tokenizer(BPE())
    doubling = normalizers.Replace("a", "aa")
    raw.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("_"), doubling])
    assert is_quick(raw)
    raw.normalizer = normalizers.Sequence([doubling] * 40)
    assert not is_quick(raw)
    assert is_quick(Tokenizer(WordPiece({"a": 0}, unk_token="a")))
    assert not is_quick(
        Tokenizer(WordPiece({"a": 0}, unk_token="a", max_input_chars_per_word=9999))
    )


def test_a_decoder_that_may_write_more_than_any_model_is_refused():
    raw = Tokenizer(BPE())
    raw.decoder = decoders.ByteLevel()
    check_decoder(raw)
    raw.decoder = decoders.Sequence([decoders.Replace("a", "aa")] * 40)
    with pytest.raises(UnusableFolder):
        check_decoder(raw)
