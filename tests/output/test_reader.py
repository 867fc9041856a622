"""A choice, from token ids to events."""

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core.events import Token
from vinery_serving.core.request import Repetition, ToolCall
from vinery_serving.core.result import ChoiceResult, ReasoningItem, TextItem
from vinery_serving.output.detokenize import Detokenizer
from vinery_serving.output.writer import merged

from .builders import MODEL, a_reader, choice_of, cut, ids_of, reason_of

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TWICE_THREE = Repetition(max_size=3, min_size=2, min_count=3)
TOKENIZER = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
SPECIAL = {1: "<|im_start|>", 2: "<|im_end|>", 7: "<think>", 8: "</think>"}


def whole(text: str, **reader_settings):
    reader = a_reader(**reader_settings)
    events = reader.feed(ids_of(text))
    return choice_of([*events, *reader.finish("stop")])


def test_it_reads_reasoning_text_and_calls_in_order_and_numbers_the_calls():
    result = whole(f"<think>Hm.</think>Look: {CALL}")

    call = ToolCall("call_0", "f", '{"a": 1}')
    assert result.items == (ReasoningItem("Hm."), TextItem("Look: "), call)
    assert result.finish_reason is ev.FinishReason.TOOL_CALLS
    assert [call.id for call in whole(CALL + CALL).tool_calls] == ["call_0", "call_1"]


def test_neighbouring_text_of_one_feed_is_one_delta_and_a_call_two_events():
    assert a_reader().feed(ids_of("Hello")) == [ev.TextDelta(0, "Hello")]
    assert a_reader().feed(ids_of(CALL)) == [
        ev.ToolCallStarted(0, 0, "call_0", "f"),
        ev.ToolCallDelta(0, 0, '{"a": 1}'),
    ]


def test_the_engines_reason_is_reported_unless_a_call_was_complete_before_the_limit():
    text, cut_call, whole_call = a_reader(), a_reader(), a_reader()
    text.feed(ids_of("one, two"))
    assert cut_call.feed(ids_of(CALL[: CALL.index("1")]))
    whole_call.feed(ids_of(CALL + "\nAnd now"))

    assert text.finish("length") == [ev.Finished(0, ev.FinishReason.LENGTH)]
    assert reason_of(cut_call.finish("length")) is ev.FinishReason.LENGTH
    assert reason_of(whole_call.finish("length")) is ev.FinishReason.TOOL_CALLS


def test_a_stop_string_ends_the_choice_and_tokens_after_it_do_not_count():
    reader = a_reader(stop=["END"])

    events = reader.feed(ids_of("one END two"))

    assert reader.is_stopped
    assert reader.num_output_tokens == len("one END")
    assert events == [ev.TextDelta(0, "one ")]
    assert reader.feed(ids_of("three")) == []
    assert reader.finish("length") == [ev.Finished(0, ev.FinishReason.STOP, cause="END")]


@table(
    "text, settings, expected, cause",
    [
        ("one END two", {"stop": ["END"]}, "one ", "END"),
        ("one END two", {"stop": ["END"], "include_stop_text": True}, "one END", "END"),
        ("one END two", {"stop": ["two", "END", "E E"]}, "one ", "END"),
        # The beginning of a stop string is sent at the end.
        ("one EN", {"stop": ["END"]}, "one EN", None),
        # In text that the parser held back.
        ("a <tool_c", {"stop": ["zzz", "<tool"]}, "a ", "<tool"),
        # In text that was held for a stop string, which a token ends.
        ("cabx", {"stop": ["ab!"], "stop_ids": ids_of("x")}, "cab", ord("x")),
        # Tokens of the request are reported, but not the model's own.
        ("one!", {"stop_ids": ids_of("!?")}, "one", ord("!")),
        ("one?", {"stop_ids": ids_of("!?")}, "one", ord("?")),
        ("one?", {"end_ids": ids_of("?")}, "one", None),
        ("one? two", {"end_ids": ids_of("?")}, "one", None),
        # Nor does any end a choice before its least tokens.
        ("ababababab", {"repetition": TWICE_THREE, "min_tokens": 8}, "abababab", ev.REPETITION),
        ("ababab", {"repetition": TWICE_THREE, "stop": ["babab"]}, "a", "babab"),
        # Held text is sent when a repetition ends the choice.
        ("a<a<a<", {"repetition": Repetition(9, 1, 3)}, "a<a<a<", ev.REPETITION),
    ],
)
def test_a_choice_ends_with_what_is_met_first_and_reports_it(text, settings, expected, cause):
    result = whole(text, **settings)

    assert (result.text, result.cause) == (expected, cause)


def test_a_stop_string_counts_neither_inside_reasoning_or_a_call_nor_on_both_sides_of_a_call():
    reasoned = whole("<think>END</think>one END two", stop=["END"])
    called = whole(CALL.replace("1", '"END"'), stop=["END", "}", "\n"])
    around = whole(f"E{CALL}ND", stop=["END"])

    assert (reasoned.reasoning, reasoned.text, reasoned.cause) == ("END", "one ", "END")
    assert called.tool_calls[0].arguments == '{"a": "END"}'
    assert (called.text, called.cause) == ("", None)
    assert [type(item).__name__ for item in around.items] == ["TextItem", "ToolCall", "TextItem"]
    assert around.text == "END"


def test_reasoning_tokens_go_from_the_first_of_the_reasoning_to_its_closing_tag():
    decoder = Detokenizer.keeping(TOKENIZER, SPECIAL, {"<think>", "</think>"}).new_decoder()
    reader = a_reader("think", decoder=decoder)
    reasoning = TOKENIZER.encode("<think>\nHm, well.\n</think>").ids
    answer = TOKENIZER.encode("\n\nYes.<|im_end|>").ids

    reader.feed([*reasoning, *answer])
    assert reader.num_reasoning_tokens == len(reasoning)
    assert reader.num_output_tokens == len(reasoning) + len(answer)
    # In reasoning that the prompt has opened from the first token.
    opened = a_reader("think", opens_reasoning=True)
    assert opened.feed(ids_of("Hm.")) == [ev.ReasoningDelta(0, "Hm.")]
    assert opened.num_reasoning_tokens == 3


_outputs = st.lists(
    st.sampled_from(["<think>", "</think>", "\n", " ", "Hm.", "Yes.", CALL, "<tool_call>", "ENDE"]),
    max_size=6,
).map("".join)


@given(_outputs, st.booleans(), st.booleans(), st.integers(1, 7))
def test_any_batches_of_tokens_give_the_same_result(text, opens, include, size):
    def reader():
        return a_reader(stop=["ND", "s.\n"], include_stop_text=include, opens_reasoning=opens)

    at_once, in_batches = reader(), reader()
    ids = ids_of(text)
    batches = [ids[at : at + size] for at in range(0, len(ids), size)]

    one = [*at_once.feed(ids), *at_once.finish("stop")]
    many = [event for batch in batches for event in in_batches.feed(batch)]
    many += in_batches.finish("stop")

    assert choice_of(many) == choice_of(one)
    assert in_batches.num_output_tokens == at_once.num_output_tokens
    assert in_batches.num_reasoning_tokens == at_once.num_reasoning_tokens


def naive_end(text: str, min_tokens: int, *, is_included: bool) -> str:
    """The text up to the first "x" that may end it: here a token is a character."""
    for at, character in enumerate(text):
        if character == "x" and at + 1 > min_tokens:
            return text[: at + is_included]
    return text


@given(
    st.text("abx", max_size=20),
    st.integers(0, 12),
    st.booleans(),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_a_stop_id_ends_a_choice_after_the_least_number_of_tokens(text, least, included, cuts):
    reader = a_reader("plain", stop_ids=[ord("x")], min_tokens=least, include_stop_text=included)

    events = [event for part in cut(text, cuts) for event in reader.feed(ids_of(part))]
    choice = choice_of([*events, *reader.finish("length")])

    expected = naive_end(text, least, is_included=included)
    is_met = "x" in text[least:]
    assert choice.text == expected
    assert reader.is_stopped is is_met
    assert choice.finish_reason is (ev.FinishReason.STOP if is_met else ev.FinishReason.LENGTH)
    assert reader.num_output_tokens == len(naive_end(text, least, is_included=True))


@given(st.text("ab ", max_size=30), st.integers(0, 30))
def test_no_stop_string_begins_before_the_least_number_of_tokens(text, least):
    reader = a_reader("plain", stop=["ab"], min_tokens=least)

    choice = choice_of([*reader.feed(ids_of(text)), *reader.finish("length")])

    at = text.find("ab", least)
    assert choice.text == (text if at < 0 else text[:at])
    assert reader.is_stopped is (at >= 0)


def test_hidden_reasoning_is_counted_and_not_sent():
    shown, hidden = a_reader(), a_reader(hides_reasoning=True)

    for reader in (shown, hidden):
        events = [*reader.feed(ids_of("<think>Hm, well.</think>Yes")), *reader.finish("stop")]

    assert choice_of(events).items == (TextItem("Yes"),)
    assert hidden.num_reasoning_tokens == shown.num_reasoning_tokens > len("Hm, well.")


# Special tokens, single bytes of characters, and words.
SOME_IDS = st.lists(st.integers(0, 400), max_size=20)


@table("family", ["plain", "think", "think+hermes"])
@given(st.lists(st.lists(st.integers(0, 400), max_size=6), max_size=6), st.integers(0, 12))
def test_a_batch_has_the_events_of_its_tokens_one_by_one(family, batches, min_tokens):
    """Also one with a stop token, special tokens, halves of characters, and reasoning."""
    detokenizer = Detokenizer.keeping(TOKENIZER, SPECIAL, {"<think>", "</think>"})
    together, single = (
        a_reader(family, decoder=detokenizer.new_decoder(), stop_ids=[300], min_tokens=min_tokens)
        for _ in range(2)
    )

    for batch in batches:
        events = together.feed(batch)
        assert events == merged(event for id_ in batch for event in single.feed([id_]))
    assert together.num_output_tokens == single.num_output_tokens
    assert together.num_reasoning_tokens == single.num_reasoning_tokens
    assert together.finish("length") == single.finish("length")


def exposed(token_ids: list[int], size: int, *, silent: bool) -> ChoiceResult:
    """The choice of batches of these tokens, with each token known by its id."""
    reader = a_reader(
        "plain",
        decoder=Detokenizer.keeping(TOKENIZER, SPECIAL, ()).new_decoder(),
        exposes_tokens=True,
        exposes_silent_tokens=silent,
    )
    events: list[ev.Event] = []
    for at in range(0, len(token_ids), size):
        batch = token_ids[at : at + size]
        tokens = [Token(id_, str(id_), b"?", logprob=-1.0, rank=1) for id_ in batch]
        events += reader.feed(batch, tokens)
    return choice_of([*events, *reader.finish("stop")])


@given(SOME_IDS, st.integers(1, 5))
def test_silent_tokens_are_exposed_in_order_only_where_all_are_wanted(token_ids, size):
    with_all, without = (exposed(token_ids, size, silent=silent) for silent in (True, False))
    assert [token.id for token in with_all.tokens] == token_ids
    assert all((token.raw == b"") == (token.id in SPECIAL) for token in with_all.tokens)
    spoken = [id_ for id_ in token_ids if id_ not in SPECIAL]
    assert [token.id for token in without.tokens] == spoken
    assert with_all.text == without.text
