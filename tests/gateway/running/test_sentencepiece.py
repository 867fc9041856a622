"""Texts, tokens and offsets agree for tokenizers that write a sign for the space.

Such tokenizers drop the first space of a text. An answer that continues a text keeps its first
space.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.running.tiny_chat import new_engine
from tests.prompting.builders import a_chat
from tests.prompting.sentencepiece import END, KINDS, SPACE, START, VOCABULARY, a_model_folder
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.events import Event, TextDelta, Token
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.preparing.prepared import Draft, PreparedRequest
from vinery_serving.prompting.assets import ModelAssets, Prompt
from vinery_serving.protocols.common.encoding import TextLogprobs
from vinery_serving.transport.messages import TokenLogprobs

LOGPROBS = req.LogprobsOptions(num_top=0, num_top_of_prompt=0)
KIND = table("kind", KINDS)
TEXT = "The Paris is a"
# Words with and without a space, and spaces alone. Parts of characters, which are bytes:
# tests/protocols/test_text_offsets.py
TEXT_IDS = [id_ for name, id_ in VOCABULARY.items() if name not in ("<unk>", START, END)]
WHOLE_IDS = [id_ for id_ in TEXT_IDS if not 3 <= id_ < 259]
WHOLE = st.lists(st.sampled_from(WHOLE_IDS), min_size=1, max_size=12)


@cache
def engine(kind: str) -> Engine:
    """The engine's process does not run."""
    folder = a_model_folder(Path(mkdtemp()) / kind, KINDS[kind]())
    return new_engine(folder, ModelAssets.load(folder))


def prepared(
    kind: str, prompts: req.RawPrompts | req.Conversation, prompt: Prompt
) -> PreparedRequest:
    endpoint = (
        req.Endpoint.COMPLETIONS if isinstance(prompts, req.RawPrompts) else req.Endpoint.CHAT
    )
    request = req.GenerationRequest(endpoint, kind, prompts, logprobs=LOGPROBS)
    return PreparedRequest.of(Draft(request, (prompt,), (), 1), engine(kind), Meter(), "t")


def completion(kind: str, text: str | tuple[int, ...] = TEXT) -> PreparedRequest:
    prompts = req.RawPrompts((text,), echo=True)
    return prepared(kind, prompts, engine(kind).assets.encode_prompt(text))


def chat(kind: str, *, continues: bool = False) -> PreparedRequest:
    rendering = req.Rendering(continues_final_message=continues)
    prompts = a_chat(("user", "a"), ("assistant", "The"), rendering=rendering)
    ids = engine(kind).assets.tokenizer.encode_raw("a The")
    return prepared(kind, prompts, Prompt(tuple(ids), "a The"))


def chances(ids: Sequence[int]) -> list[TokenLogprobs]:
    return [TokenLogprobs(-1.0, 1, ()) for _ in ids]


def answer(prepared: PreparedRequest, ids: Sequence[int]) -> tuple[str, list[Token]]:
    """The text of these tokens, read singly, and the tokens with text and offset."""
    reader = prepared.reader(0)
    events: list[Event] = []
    for id_ in ids:
        events += reader.feed((id_,), prepared.answer_tokens((id_,), chances((id_,))))
    events += reader.finish("length")
    deltas = [event for event in events if isinstance(event, TextDelta)]
    return "".join(each.text for each in deltas), [each for d in deltas for each in d.tokens]


def check_offsets(text: str, tokens: Sequence[Token]) -> None:
    """Each token is in the text at its offset."""
    logprobs = TextLogprobs().of(tokens)
    assert b"".join(token.raw for token in tokens).decode() == text
    for token, offset in zip(tokens, logprobs.text_offset, strict=True):
        if token.raw:
            assert text[offset:].startswith(token.text)


@KIND
@given(WHOLE)
def test_an_answer_continues_its_prompt(kind, ids):
    text, tokens = answer(completion(kind), ids)

    tokenizer = engine(kind).assets.tokenizer
    before = tokenizer.encode_raw(TEXT)
    assert text == tokenizer.decode([*before, *ids]).removeprefix(tokenizer.decode(before))
    assert [token.id for token in tokens] == ids
    check_offsets(text, tokens)


@KIND
def test_an_answer_keeps_its_first_space_unless_it_begins_a_text(kind):
    of, paris, the = (VOCABULARY[f"{SPACE}{word}"] for word in ("of", "Paris", "The"))
    text, tokens = answer(completion(kind), [of, paris, VOCABULARY[END]])
    assert text == " of Paris"
    shown = [(token.text, token.raw) for token in tokens]
    assert shown == [(" of", b" of"), (" Paris", b" Paris"), (END, b"")]

    # After a start token alone, the first space is dropped.
    text, tokens = answer(completion(kind, (VOCABULARY[START],)), [the, paris])
    assert text == engine(kind).assets.tokenizer.decode([the, paris])
    check_offsets(text, tokens)
    # A prompt that ends inside a character does not hide the character.
    half = (VOCABULARY["a"], VOCABULARY["<0xC3>"])
    text, _ = answer(completion(kind, half), [the])
    assert text == " The"


@KIND
@given(WHOLE)
def test_an_answer_to_a_chat_begins_a_text_or_continues_a_message(kind, ids):
    tokenizer = engine(kind).assets.tokenizer
    begun = tokenizer.decode([VOCABULARY["a"], *ids])[1:]
    for continues, expected in ((False, tokenizer.decode(ids)), (True, begun)):
        text, tokens = answer(chat(kind, continues=continues), ids)
        assert text == expected
        check_offsets(text, tokens)


@KIND
@table("prompt", [TEXT, " a  Paris", "é,is\n", "a", tuple(WHOLE_IDS[::-7])])
def test_an_echoed_prompt_has_the_offsets_of_its_tokens(kind, prompt):
    prompts = completion(kind, prompt)
    ids = prompts.prompts[0].token_ids

    tokens = prompts.prompt_tokens(prompts.prompts[0], chances(ids[1:]))

    assert [token.id for token in tokens] == list(ids)
    if isinstance(prompt, str):
        assert (tokens[0].text, tokens[0].raw) == (START, b"")
    check_offsets(engine(kind).assets.text_of(prompts.prompts[0]), tokens)
