"""Both tokenizers agree about one model."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordLevel, WordPiece

from tests.examples import examples
from tests.tables import table
from vinery_serving.gateway.reading.worker_jobs import CODEC
from vinery_serving.output.detokenize import Detokenizer
from vinery_serving.prompting import tokenizer as room
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.budget import OverBudget
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder
from vinery_serving.prompting.tokenizer import (
    FastTokenizer,
    VinoTokenizer,
    check_decoder,
    is_quick,
    load_tokenizer,
)

from .builders import MODEL, a_copy_of_the_model, a_folder, with_tokens_around

PROMPT = "<|im_start|>user\nHow many? 12, é, 東京 😀<|im_end|>\n<tool_call>"


@pytest.fixture(scope="module")
def fast():
    return load_tokenizer(ModelFolder.read(MODEL))


@pytest.fixture(scope="module")
def vino(tmp_path_factory):
    path = tmp_path_factory.mktemp("vino") / "model"
    return load_tokenizer(ModelFolder.read(a_copy_of_the_model(path, without=("tokenizer.json",))))


def test_each_folder_gets_the_tokenizer_that_it_has_and_both_know_the_same_tokens(fast, vino):
    assert isinstance(fast, FastTokenizer)
    assert isinstance(vino, VinoTokenizer)
    assert vino.facts.special_texts == fast.facts.special_texts
    assert fast.facts.special_texts[2] == "<|im_end|>"
    assert vino.facts.eos_ids == fast.facts.eos_ids == {2}
    assert vino.facts.vocab_size == fast.facts.vocab_size == 3072
    assert fast.token_name(2) == vino.token_name(2) == "<|im_end|>"
    assert fast.token_id("<|im_end|>") == vino.token_id("<|im_end|>") == 2
    assert fast.token_id("no such token") is vino.token_id("no such token") is None
    assert fast.token_name(9999) == vino.token_name(9999) == ""


def test_both_encode_and_decode_a_rendered_prompt_and_every_token_alike(fast, vino):
    ids = fast.encode(PROMPT)

    # Special tokens in a text stay special tokens, and other tokens may be half a character.
    assert (ids[0], ids[-1]) == (1, 3)
    assert "".join(fast.decode([id_]) for id_ in fast.encode("<|im_end|>")) == "<|im_end|>"
    text = "Zürich 東京 <|im_end|>"
    assert b"".join(map(fast.token_bytes, fast.encode(text))).decode() == text
    assert vino.encode(PROMPT) == ids
    assert vino.encode_raw(PROMPT) == fast.encode_raw(PROMPT)
    assert fast.decode(ids) == vino.decode(ids) == PROMPT
    every = range(fast.facts.vocab_size)
    assert [vino.decode([id_]) for id_ in every] == [fast.decode([id_]) for id_ in every]


@settings(max_examples=examples(30), deadline=None)
@given(text=st.text(max_size=40))
def test_both_encode_alike(fast, vino, text):
    assert vino.encode(text) == fast.encode(text)


def test_raw_texts_get_the_special_tokens_around_them(tmp_path):
    path = with_tokens_around(a_copy_of_the_model(tmp_path / "m"))
    tokenizer = load_tokenizer(ModelFolder.read(path))

    assert tokenizer.encode_raw("Hi") == [1, *tokenizer.encode("Hi")]


CUT = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}


@table("changes", [{"truncation": CUT}, {"decoder": None}])
def test_a_limit_in_the_file_does_not_cut_prompts_and_no_decoder_is_needed(tmp_path, changes):
    file = a_copy_of_the_model(tmp_path / next(iter(changes))) / "tokenizer.json"
    config = json.loads(file.read_text()) | changes
    file.unlink()
    file.write_text(json.dumps(config))

    assert len(load_tokenizer(ModelFolder.read(file.parent)).encode("one two three " * 9)) > 9


def test_an_end_token_is_that_of_the_tokenizer_or_special_though_it_is_not_marked_so(tmp_path):
    path = a_copy_of_the_model(tmp_path / "m", without=("generation_config.json", "config.json"))
    assert load_tokenizer(ModelFolder.read(path)).facts.eos_ids == {2}
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 100]}')
    assert 100 in load_tokenizer(ModelFolder.read(path)).facts.special_texts


def test_it_refuses_a_broken_tokenizer(tmp_path):
    path = a_folder(tmp_path)
    with pytest.raises(UnusableFolder, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(ModelFolder.read(path))

    (path / "tokenizer.json").unlink()
    (path / "openvino_tokenizer.xml").write_text("<net></net>")
    with pytest.raises(UnusableFolder, match="OpenVINO's tokenizer"):
        load_tokenizer(ModelFolder.read(path))


# -- Tokenizers that take long to load

_NAMES = [
    *(f"<0x{byte:02X}>" for byte in (0x0A, 0x20, 0xC3, 0xA9, 0xE6, 0x9D, 0xB1, 0xFF)),
    *("a", "b", "\u2581the", "\u2581", "\u0120Hi", "\u0120", "\u00c3", "\u00a9", "##ing", "ing"),
    *("word</w>", "|", "<pad>", " ", "\n", "x y", "'s", ".", "\u00e9", "\U0001f600", ""),
]
_REPLACES = decoders.Replace("\u2581", " ")
_DECODERS = [
    *(None, decoders.ByteLevel(), decoders.Metaspace(), decoders.WordPiece(), decoders.CTC()),
    *(decoders.BPEDecoder(), decoders.Fuse(), decoders.ByteFallback(), _REPLACES),
    decoders.Metaspace(prepend_scheme="first", split=False),
    decoders.WordPiece(prefix="", cleanup=False),
    decoders.Sequence(
        [_REPLACES, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1)]
    ),
]


def _named_tokenizer(decoder):
    names = {name: 2 * at for at, name in enumerate(_NAMES)}  # every other id has no token
    raw = Tokenizer(WordLevel(names, unk_token="a"))
    raw.add_special_tokens(["<s>", "</s>"])
    raw.add_tokens([AddedToken("\u2581Hello there", normalized=False)])
    raw.decoder = decoder
    return raw


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(_DECODERS), st.lists(st.integers(0, 70), max_size=12))
def test_a_list_of_tokens_decodes_as_the_tokenizer_does(decoder, ids):
    raw = _named_tokenizer(decoder)
    listed = room.TokenList.of(raw, 1 + max(raw.get_vocab().values()))
    tokens = room._ListedTokens(CODEC.loads(CODEC.dumps(listed)))

    assert tokens.decode(ids, skip_special_tokens=False) == raw.decode(
        ids, skip_special_tokens=False
    )
    assert [*map(tokens.id_to_token, ids)] == [*map(raw.id_to_token, ids)]
    for name in ("a", "<s>", "\u2581Hello there", "none"):
        assert tokens.token_to_id(name) == raw.token_to_id(name)


@settings(max_examples=examples(30), deadline=None)
@given(text=st.text(max_size=60))
def test_answers_have_the_same_text(fast, listed, text):
    ids = fast.encode(text)
    texts = []
    for each in (fast, listed):
        decoder = Detokenizer(each.raw, frozenset()).new_decoder()
        texts.append("".join(map(decoder.feed, ids)) + decoder.finish())
    assert texts == [text, text]


@pytest.fixture(scope="module")
def listed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_LONG_LOAD_S", -1)
        facts = CODEC.loads(CODEC.dumps(ModelAssets.load(MODEL).facts))
    return ModelAssets.of(facts, is_frugal=True).tokenizer


def test_the_web_process_lists_the_tokens_of_a_tokenizer_that_takes_long_to_load(fast, listed):
    assert not isinstance(listed.raw, Tokenizer)
    every = range(fast.facts.vocab_size + 1)
    assert [*map(listed.token_name, every)] == [*map(fast.token_name, every)]
    assert [*map(listed.token_bytes, every)] == [*map(fast.token_bytes, every)]
    assert listed.decode(fast.encode(PROMPT)) == PROMPT
    with pytest.raises(OverBudget):
        listed.encode(PROMPT)
    # Others load the file and encode.
    assert listed.facts.listed is None
    assert load_tokenizer(ModelFolder.read(MODEL), listed.facts).encode("Hi") == fast.encode("Hi")


# -- Tokenizers that encode small texts where no process may be killed

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
