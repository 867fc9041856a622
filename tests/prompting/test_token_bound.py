"""A text never has fewer tokens than the bound, whatever it contains; tokenizers that may drop
text have no bound."""

import json
import shutil
import unicodedata
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer

from tests.tables import table
from vinery_serving.prompting.folder import ModelFolder
from vinery_serving.prompting.token_bound import NO_BOUND, TokenBound, bound_of_fast, bound_of_vino
from vinery_serving.prompting.tokenizer import FastTokenizer, Tokenizer, VinoTokenizer

from .builders import MODEL

SPACES = st.text(" \n\t\u3000\xa0", max_size=40)
SPECIAL = st.sampled_from(
    ["<|im_start|>", "<|im_end|>", "</tool_response>", "<think>", "<0x41>", "▁▁▁", "\ufdfa"]
)
COMPOSED = st.sampled_from(["e\u0301", "u\u0308\u0304", "\u1112\u1161\u11ab", "\u212b", "\u1fef"])
TEXTS = st.lists(
    st.one_of(st.text(max_size=20), st.text("a", max_size=40), SPACES, SPECIAL, COMPOSED),
    max_size=12,
).map("".join)


def fast(**changes: Any) -> RawTokenizer:
    """The tokenizer of the reference model, with other components."""
    settings = json.loads((MODEL / "tokenizer.json").read_text())
    return RawTokenizer.from_str(json.dumps({**settings, **changes}))


def bound_of(raw: RawTokenizer) -> TokenBound:
    return bound_of_fast(raw, raw.get_vocab(with_added_tokens=True))


@cache
def sentencepiece_like() -> RawTokenizer:
    """As Llama 2's: spaces are a letter, and unknown letters are the tokens of their bytes."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁▁", "▁▁▁▁", "a", "aa"]
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": {name: at for at, name in enumerate(names)},
        "merges": ["▁ ▁", "▁▁ ▁▁", "a a"],
    }
    prepend = {"type": "Prepend", "prepend": "▁"}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    normalizer = {"type": "Sequence", "normalizers": [prepend, spaces]}
    return fast(
        model=model, normalizer=normalizer, pre_tokenizer=None, decoder=None, added_tokens=[]
    )


@cache
def greedy() -> RawTokenizer:
    """White space after a special token belongs to it, as in Phi 3's."""
    settings = json.loads((MODEL / "tokenizer.json").read_text())
    added = [{**token, "rstrip": True, "lstrip": True} for token in settings["added_tokens"]]
    return fast(added_tokens=added)


@cache
def normalized(kind: str) -> RawTokenizer:
    return fast(normalizer={"type": kind})


NORMALIZED = {form: partial(normalized, form) for form in ("NFC", "NFD", "NFKC", "NFKD")}


@cache
def with_bound(make: Callable[[], RawTokenizer]) -> tuple[RawTokenizer, TokenBound]:
    raw = make()
    return raw, bound_of(raw)


@table("make", [fast, sentencepiece_like, greedy, NORMALIZED["NFC"], NORMALIZED["NFKC"]])
@given(text=TEXTS)
def test_a_text_never_has_fewer_tokens_than_its_bound(make, text):
    raw, bound = with_bound(make)

    assert bound != NO_BOUND
    assert bound.least_tokens(text) <= len(raw.encode(text, add_special_tokens=False).ids)


@cache
def vino() -> Tokenizer:
    return VinoTokenizer(ModelFolder.read(MODEL))


@given(TEXTS)
def test_the_bound_holds_for_openvinos_tokenizer(text):
    assert vino().facts.bound != NO_BOUND
    assert vino().facts.bound.least_tokens(text) <= len(vino().encode(text))


@table("form", NORMALIZED)
@given(text=TEXTS)
def test_no_normal_form_shortens_a_text_by_more_than_its_factor(form, text):
    _, bound = with_bound(NORMALIZED[form])
    factor = bound.factor

    assert len(text.encode()) <= factor * len(unicodedata.normalize(form, text).encode())


@table(
    "changes",
    [
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": {"type": "WhitespaceSplit"}},
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"String": " "},
                "behavior": "Removed",
                "invert": False,
            }
        },
        {"pre_tokenizer": {"type": "Digits", "individual_digits": True}},
        {"normalizer": {"type": "StripAccents"}},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}},
        {"normalizer": {"type": "Replace", "pattern": {"String": "aa"}, "content": "a"}},
        {"model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}},
    ],
)
def test_a_tokenizer_that_may_drop_text_has_no_bound(changes):
    bound = bound_of(fast(**changes))

    assert bound == NO_BOUND
    assert bound.least_tokens("a" * 10**6) == 0


def test_a_vocabulary_without_a_byte_has_no_bound():
    raw = fast()
    vocabulary = raw.get_vocab(with_added_tokens=True)
    vocabulary.pop("Ġ")

    assert bound_of_fast(raw, vocabulary) == NO_BOUND
    assert bound_of_vino(MODEL, [b"a"]) == NO_BOUND


def test_the_bound_is_the_longest_token_unless_openvinos_tokenizer_normalizes(tmp_path):
    bound = FastTokenizer(ModelFolder.read(MODEL)).facts.bound
    assert bound == TokenBound(len("</tool_response>"))
    assert bound.least_tokens("a" * 161) == 11
    assert bound.least_tokens("é" * 80) == 10

    path = shutil.copy(MODEL / "openvino_tokenizer.xml", tmp_path / "openvino_tokenizer.xml")
    tokens = [bytes([byte]) for byte in range(256)]
    assert bound_of_vino(tmp_path, tokens).max_token_bytes == 1
    path.write_text(path.read_text() + '<layer type="RegexNormalization"/>')
    assert bound_of_vino(tmp_path, tokens) == NO_BOUND
