"""A model's tokenizer answers without its engine, and long texts do not block the event loop."""

from __future__ import annotations

import pytest

from tests.flow.tiny_chat import prepared_of
from tests.prompting.builders import a_chat
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Conversation, Encoding, Rendering
from vinery_serving.core.tokens import Padding, TokenizeRequest
from vinery_serving.flow.directory import Engine
from vinery_serving.flow.rendering import count_tokens, detokenize, tokenize

HELLO = a_chat(("user", "Hello!"))


async def test_a_count_is_that_of_the_prompt(engine: Engine) -> None:
    prepared = await prepared_of(engine)

    assert count_tokens(prepared.request, engine) == prepared.prompts[0].num_tokens


async def test_a_chat_has_the_tokens_of_its_prompt(engine: Engine) -> None:
    tokenized = tokenize(TokenizeRequest(None, HELLO, Encoding()), engine)

    assert tokenized.token_ids == (engine.assets.render(HELLO).token_ids,)
    assert tokenized.max_context == 2048
    assert tokenized.token_strings is None


async def test_texts_are_tokenized_separately(engine: Engine) -> None:
    request = TokenizeRequest(None, ("one", "", "two three"), Encoding(), wants_token_strings=True)

    tokenized = tokenize(request, engine)

    assert [detokenize(ids, engine) for ids in tokenized.token_ids] == ["one", "", "two three"]
    assert tokenized.token_strings is not None
    assert [len(names) for names in tokenized.token_strings] == [
        len(ids) for ids in tokenized.token_ids
    ]


@table("is_left", [True, False])
async def test_short_texts_are_padded_and_long_ones_cut(engine: Engine, is_left: bool) -> None:
    texts = ("one", "one two three four five six")
    encoding = Encoding(max_tokens=4, keeps_start=True)
    request = TokenizeRequest(None, texts, encoding, padding=Padding(4, is_left))

    short, long = tokenize(request, engine).token_ids

    one = engine.assets.ids_of_text("one")
    pads = (0,) * (4 - len(one))
    assert short == ((*pads, *one) if is_left else (*one, *pads))
    assert long == tuple(engine.assets.ids_of_text(texts[1])[:4])


async def test_unknown_ids_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequest) as caught:
        detokenize((5, 99999), engine)

    assert caught.value.param == "tokens"


async def test_a_template_of_a_request_must_be_trusted_here_too(engine: Engine) -> None:
    chat = Conversation(HELLO.messages, rendering=Rendering(template="x"))

    with pytest.raises(UnsupportedParameter):
        tokenize(TokenizeRequest(None, chat, Encoding()), engine)
