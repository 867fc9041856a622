"""Decoders: the text of any ids, whatever the cuts, and never half a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.examples import examples
from tests.prompting.sentencepiece import llama2
from tests.tables import table
from vinery_serving.output.detokenize import Decoder, Detokenizer, FastDecoder, WindowDecoder

from .builders import MODEL

TINY = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
NONE_DROPPED: frozenset[int] = frozenset()


# Characters outside the vocabulary are byte tokens, and the first space of a text is dropped.
FALLBACK = llama2()
START = FALLBACK.token_to_id("<s>")


def fallback_ids(text: str) -> list[int]:
    return FALLBACK.encode(text, add_special_tokens=False).ids


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    return [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in data]


def decoded(decoder: Decoder, ids: list[int]) -> str:
    return "".join(decoder.feed(id_) for id_ in ids) + decoder.finish()


@given(st.lists(st.integers(0, 3071), max_size=30) | st.lists(st.integers(9, 264), max_size=30))
def test_any_ids_and_single_bytes_decode_to_the_text_of_them_all_at_once(ids):
    sent = decoded(FastDecoder(TINY, NONE_DROPPED), ids)

    assert sent == TINY.decode(ids, skip_special_tokens=False)


@table("tokenizer, end", [(TINY, 3072), (TINY, 264), (FALLBACK, 262)])
@given(batches=st.lists(st.lists(st.integers(0, 3071), max_size=8), max_size=8))
def test_batches_have_the_text_of_their_tokens_one_by_one(tokenizer, end, batches):
    together, single = (FastDecoder(tokenizer, frozenset({5})) for _ in range(2))

    for batch in batches:
        ids = [id_ % end for id_ in batch]
        assert together.feed_all(ids) == "".join(map(single.feed, ids))
    assert together.finish() == single.finish()


def test_a_batch_keeps_the_text_around_a_broken_character_and_before_half_of_one():
    ids = [*byte_ids(FALLBACK, b"\x00\x80"), FALLBACK.token_to_id("<unk>")]
    assert FastDecoder(FALLBACK, NONE_DROPPED).feed_all(ids).startswith("\0")

    decoder = FastDecoder(TINY, NONE_DROPPED)
    ids = TINY.encode("one two 😀").ids
    assert decoder.feed_all(ids[:-1]) == "one two "
    assert decoder.feed_all(ids[-1:]) == "😀"


@given(st.text(max_size=30))
def test_every_text_comes_back_and_no_delta_holds_half_a_character(text):
    decoder = FastDecoder(TINY, NONE_DROPPED)

    deltas = [decoder.feed(id_) for id_ in TINY.encode(text).ids]

    assert "".join(deltas) == text
    assert "\ufffd" in text or not any("\ufffd" in delta for delta in deltas)


@given(st.text("ab é😀漢", max_size=20))
def test_byte_tokens_come_together_as_characters(text):
    ids = fallback_ids(text)

    assert decoded(FastDecoder(FALLBACK, NONE_DROPPED), ids) == FALLBACK.decode(ids)


def test_half_a_character_at_the_end_is_sent_as_a_replacement_and_never_held_for_long():
    broken = TINY.encode("😀").ids[0]
    assert decoded(FastDecoder(TINY, NONE_DROPPED), [broken]) == "\ufffd"

    decoder = FastDecoder(TINY, NONE_DROPPED)
    sent = "".join(decoder.feed(broken) for _ in range(200))
    assert 150 < len(sent) <= 200
    assert sent + decoded(decoder, TINY.encode("😀 fine").ids) == "\ufffd" * 200 + "😀 fine"


def test_special_tokens_vanish_unless_they_are_kept_and_do_not_break_a_character():
    special = {1: "<|im_start|>", 2: "<|im_end|>", 3: "<tool_call>"}
    detokenizer = Detokenizer.keeping(TINY, special, {"<tool_call>"})
    ids = TINY.encode("<|im_start|>é<tool_call>x<|im_end|>").ids
    first, *rest = TINY.encode("é").ids

    assert decoded(detokenizer.new_decoder(), ids) == "é<tool_call>x"
    assert decoded(detokenizer.new_decoder(), [first, 2, *rest]) == "é"


def test_it_goes_on_after_bytes_that_turn_out_to_be_no_text_and_disturbs_no_other_decoder():
    """The tokenizer's own stream raises here: the euro sign was sent before the bad byte."""
    ids = [*byte_ids(FALLBACK, "€".encode() + b"\xff"), *fallback_ids("a a")]
    assert decoded(FastDecoder(FALLBACK, NONE_DROPPED), ids) == "€\ufffd a a"

    detokenizer = Detokenizer.keeping(TINY, {}, ())
    one, other = detokenizer.new_decoder(), detokenizer.new_decoder()
    ids = TINY.encode("😀").ids
    one.feed(ids[0])
    assert decoded(other, ids) == "😀"


def test_a_text_that_is_gone_on_with_keeps_its_spaces():
    ids = fallback_ids("a a")
    detokenizer = Detokenizer.keeping(FALLBACK, {START: "<s>"}, ())

    assert decoded(detokenizer.new_decoder(), ids) == "a a"
    assert decoded(detokenizer.new_decoder(after=fallback_ids("b")), ids) == " a a"
    # Special tokens and parts of characters are no text to go on with.
    for after in ([START], [START, START], byte_ids(FALLBACK, b"\xc3"), []):
        assert decoded(detokenizer.new_decoder(after), fallback_ids("a")) == "a"


@given(st.lists(st.integers(0, 3071), max_size=20), st.lists(st.integers(9, 3071), max_size=9))
def test_what_goes_before_changes_nothing_where_no_space_is_dropped(ids, before):
    detokenizer = Detokenizer(TINY, NONE_DROPPED)

    assert decoded(detokenizer.new_decoder(before), ids) == decoded(detokenizer.new_decoder(), ids)


@pytest.fixture(scope="module")
def vino():
    openvino_genai = pytest.importorskip("openvino_genai")
    return openvino_genai.Tokenizer(str(MODEL))


@settings(max_examples=examples(30), deadline=None)
@given(text=st.text(max_size=40))
def test_the_openvino_decoder_returns_the_same_text(vino, text):
    ids = TINY.encode(text).ids

    assert decoded(WindowDecoder(vino, NONE_DROPPED), ids) == text


def test_the_openvino_decoder_returns_the_same_deltas_over_a_long_text_and_ends_it_alike(vino):
    ids = TINY.encode("Grüße aus 東京 😀, and many more words. " * 12).ids
    slow, fast = WindowDecoder(vino, NONE_DROPPED), FastDecoder(TINY, NONE_DROPPED)

    assert [slow.feed(id_) for id_ in ids] == [fast.feed(id_) for id_ in ids]
    assert slow.feed(TINY.encode("😀").ids[0]) + slow.finish() == "\ufffd"


def test_a_folder_without_a_fast_tokenizer_gets_the_openvino_decoder(vino):
    decoder = Detokenizer.keeping(vino, {2: "<|im_end|>"}, ()).new_decoder()
    assert isinstance(decoder, WindowDecoder)
    assert decoded(decoder, [*TINY.encode("Hello").ids, 2]) == "Hello"

    # The decoder does not return the text before.
    before, ids = TINY.encode("Hello ").ids, TINY.encode("there, 😀 Grüße! " * 20).ids
    sent = decoded(WindowDecoder(vino, NONE_DROPPED, before[-1]), ids)
    assert sent == TINY.decode(ids)
    assert decoded(WindowDecoder(vino, NONE_DROPPED, before[-1]), []) == ""
