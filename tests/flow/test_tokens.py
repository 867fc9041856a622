"""A model's tokenizer answers without its engine, and long texts do not block the event loop."""

import pytest

from tests.flow.tiny_chat import prepared_of
from tests.prompting.builders import a_chat
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.pooling import Padding, TokenizeRequest
from vinery_serving.core.request import Conversation, Encoding, Rendering
from vinery_serving.gateway.preparing.rendering import count_tokens, detokenize, tokenize

HELLO = a_chat(("user", "Hello!"))


async def test_a_chat_has_the_tokens_of_its_prompt_and_their_count(engine):
    prepared = await prepared_of(engine)
    tokenized = tokenize(TokenizeRequest(None, HELLO, Encoding()), engine)
    assert count_tokens(prepared.request, engine) == prepared.prompts[0].num_tokens
    assert tokenized.token_ids == (engine.assets.render(HELLO).token_ids,)
    assert tokenized.max_context == 2048
    assert tokenized.token_strings is None
    # A template of a request must be trusted here too.
    chat = Conversation(HELLO.messages, rendering=Rendering(template="x"))
    with pytest.raises(UnsupportedParameter):
        tokenize(TokenizeRequest(None, chat, Encoding()), engine)


async def test_texts_are_tokenized_separately_and_unknown_ids_refused(engine):
    request = TokenizeRequest(None, ("one", "", "two three"), Encoding(), wants_token_strings=True)

    tokenized = tokenize(request, engine)
    assert [detokenize(ids, engine) for ids in tokenized.token_ids] == ["one", "", "two three"]
    lengths = [len(names) for names in tokenized.token_strings]
    assert lengths == [len(ids) for ids in tokenized.token_ids]
    with pytest.raises(InvalidRequest) as caught:
        detokenize((5, 99999), engine)
    assert caught.value.param == "tokens"


@table("is_left", [True, False])
async def test_short_texts_are_padded_and_long_ones_cut(engine, is_left):
    texts = ("one", "one two three four five six")
    encoding = Encoding(max_tokens=4, keeps_start=True)
    request = TokenizeRequest(None, texts, encoding, padding=Padding(4, is_left))

    short, long = tokenize(request, engine).token_ids

    one = engine.assets.ids_of_text("one")
    pads = (0,) * (4 - len(one))
    assert short == ((*pads, *one) if is_left else (*one, *pads))
    assert long == tuple(engine.assets.ids_of_text(texts[1])[:4])
