"""Calls as models write them, odd and damaged, and vocabularies: what holds for every one of them.

`python -m benchmarks.calls` shows more samples as a table.
"""

import pytest

from benchmarks.calls.__main__ import main
from benchmarks.calls.damage import KINDS, Sample, samples
from benchmarks.calls.forms import FORMS
from benchmarks.calls.reading import judge, num_in_order, read
from benchmarks.calls.values import Call
from benchmarks.random_models import HALF_BILLION_PLAN
from benchmarks.shapes.corpus import SENTENCES
from benchmarks.shapes.vocabulary import Vocabulary, token_id, train, unprintable_ids
from tests.tables import table

NUM_SAMPLES = 12
# What is always read whole, by every family that can write it.
ALWAYS_WHOLE = ("plain", "odd strings", "spaces", "inner quotes", "backslashes", "cut")


def in_parts(sample: Sample, distance: int) -> list[list[str]]:
    """The letters of its text, and all pairs of its parts whose lengths are so far apart."""
    text = sample.text
    return [list(text), *([text[:at], text[at:]] for at in range(0, len(text), distance))]


def check_parts(family: str, kind: str, number: int, distance: int) -> None:
    for sample in samples(family, kind, number, seed=1):
        verdict = judge(family, sample, in_parts(sample, distance))

        assert not verdict.differs_in_parts, sample.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_read_the_same_in_parts(kind: str) -> None:
    """Each night in any parts."""
    for family in FORMS:
        check_parts(family, kind, number=1, distance=53)


@table("family", FORMS)
@table("kind", ALWAYS_WHOLE)
def test_a_call_whose_meaning_is_plain_is_read_whole(family: str, kind: str) -> None:
    for sample in samples(family, kind, NUM_SAMPLES, seed=2):
        verdict = judge(family, sample, [])

        assert verdict.num_whole == verdict.num_calls, sample.text
        assert not verdict.has_markup, sample.text


def test_a_seed_gives_the_same_samples() -> None:
    first, second = (list(samples("hermes", "mixed", 5, seed=3)) for _ in range(2))
    assert first == second


def test_only_equal_calls_in_their_order_count_and_one_that_is_cut_has_no_end() -> None:
    one, two = Call("f", {"a": 1}), Call("f", {"a": True})
    assert num_in_order([one, two], [two, one]) == 1
    assert num_in_order([one, two], [one, Call("g", {}), two]) == 2

    answer = read("hermes", ['<tool_call>{"name": "ping", "arguments": {"a'], is_cut=True)
    assert (answer.text, answer.is_open) == ("", True)


def test_the_table_has_a_row_for_each_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--number", "2", "--family", "hermes", "--family", "onyx"]) == 0

    rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0] for row in rows[-2:]] == ["| hermes", "| onyx"]


SPECIAL = ("<start>", "<end>", "<pad>")


def vocabulary(size: int, prefix: str | None = None) -> Vocabulary:
    return Vocabulary(size, SPECIAL, end="<end>", pad="<pad>", prefix=prefix)


def test_the_half_billion_model_has_the_size_of_qwen2() -> None:
    assert HALF_BILLION_PLAN.shape.num_parameters == 494_032_768


def test_a_vocabulary_without_its_own_tokens_or_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="among the special tokens"):
        Vocabulary(400, ("<end>",), end="<end>", pad="<pad>")
    with pytest.raises(ValueError, match="256 entries"):
        vocabulary(200)
    with pytest.raises(KeyError, match="<other>"):
        token_id(train(vocabulary(300)), "<other>")


@table("size", [259, 400, 2000])
def test_a_vocabulary_has_exactly_its_size(size: int) -> None:
    tokenizer = train(vocabulary(size))

    assert tokenizer.get_vocab_size() == size
    assert sorted(tokenizer.get_vocab().values()) == list(range(size))
    assert tokenizer.to_str() == train(vocabulary(size)).to_str()


def test_texts_come_back_as_they_were_after_a_prefix_and_answers_are_plain() -> None:
    tokenizer = train(vocabulary(400))

    for text in (*SENTENCES, "déjà vu 漢字 🙂\n\t x"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text

    tokenizer = train(vocabulary(400, prefix="<start>"))
    assert tokenizer.encode("hello").ids[0] == token_id(tokenizer, "<start>")
    assert tokenizer.encode("hello", add_special_tokens=False).tokens[0] != "<start>"

    tokenizer = train(vocabulary(1000))
    spoken = set(range(1000)) - set(unprintable_ids(tokenizer))
    assert len(spoken) == 1000 - 256 - len(SPECIAL)
    assert all(tokenizer.decode([id_]).isascii() for id_ in spoken)
