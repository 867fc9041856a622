"""Prompts that must fit, and templates that cannot render a request."""

from dataclasses import replace

import pytest

from tests.flow.tiny_chat import ASSETS, HELLO, RAW, TINY_CHAT, ids_of, new_engine, prepared_of
from tests.prompting.builders import a_chat
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.errors import ContextTooLong, InvalidRequest, UnsupportedParameter
from vinery_serving.core.pooling import Padding, TokenizeRequest
from vinery_serving.core.request import Encoding
from vinery_serving.gateway.preparing.rendering import tokenize
from vinery_serving.prompting.assets import ModelAssets

LONG = "The capital of France is Paris. " * 60
TALK = a_chat(
    ("system", "Be brief."),
    *[("user", LONG), ("assistant", LONG)] * 9,
    ("user", "What is the capital of France?"),
    drops_oldest=True,
)
MAX_CONTEXT = ASSETS.folder.max_context or 0


def talk(*, max_tokens: int | None = None, drops_oldest: bool = True) -> req.GenerationRequest:
    prompt = replace(TALK, drops_oldest=drops_oldest)
    stopping = req.Stopping(max_tokens=max_tokens)
    return replace(HELLO, endpoint=req.Endpoint.RESPONSES, prompt=prompt, stopping=stopping)


@table("max_tokens", [1, 100, 1500, None])
async def test_a_long_conversation_loses_no_more_than_necessary(engine, max_tokens):
    prepared = await prepared_of(engine, talk(max_tokens=max_tokens))

    answer = MAX_CONTEXT // 8 if max_tokens is None else max_tokens
    (prompt,) = prepared.prompts
    exchange = ASSETS.render(req.Conversation(TALK.messages[1:3])).num_tokens
    assert MAX_CONTEXT - answer - exchange <= prompt.num_tokens <= MAX_CONTEXT - answer
    assert "Be brief." in (prompt.text or "")
    assert "What is the capital of France?" in (prompt.text or "")
    # A prompt that fits is not changed.
    short = replace(TALK, messages=TALK.messages[:5])
    prepared = await prepared_of(engine, replace(talk(), prompt=short))
    assert prepared.prompts == (ASSETS.render(short),)


@table("fields", [{"drops_oldest": False}, {"max_tokens": MAX_CONTEXT - 3}])
async def test_a_conversation_that_stays_too_long_or_may_not_be_shortened_is_refused(
    engine, fields
):
    with pytest.raises(ContextTooLong) as caught:
        await prepared_of(engine, talk(**fields))

    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")


async def test_all_that_fit_leaves_tokens_for_the_answer(tmp_path):
    prompt = req.RawPrompts(("one two three four five six seven",))
    request = replace(RAW, prompt=prompt, encoding=req.Encoding(max_tokens=req.ALL_THAT_FIT))
    engine = new_engine(tmp_path, max_context=6)
    prepared = await prepared_of(engine, replace(request, stopping=req.Stopping(max_tokens=2)))
    longest = await prepared_of(engine, request)
    with pytest.raises(ContextTooLong):
        await prepared_of(engine, replace(RAW, prompt=prompt))

    whole = tuple(ids_of(prompt.prompts[0]))
    assert prepared.prompts[0].token_ids == whole[-4:]
    assert longest.prompts[0].token_ids == whole[-5:]


@table("endpoint, param", [(req.Endpoint.RESPONSES, "input"), (req.Endpoint.CHAT, "messages")])
async def test_errors_of_templates_name_the_clients_field(endpoint, param, tmp_path):
    template = "{{ raise_exception('Begin with a question.') }}"
    engine = new_engine(tmp_path, ModelAssets.load(TINY_CHAT, template))

    with pytest.raises(InvalidRequest, match="Begin with a question") as caught:
        await prepared_of(engine, replace(HELLO, endpoint=endpoint))

    assert caught.value.param == param


async def test_a_template_of_a_request_is_refused_unless_the_model_trusts_it(tmp_path):
    template = "<{{ messages[0].content }}>"
    rendering = req.Rendering(template=template)
    request = replace(HELLO, prompt=replace(HELLO.prompt, rendering=rendering))
    engine = new_engine(tmp_path)
    with pytest.raises(UnsupportedParameter, match="trust_request_chat_template"):
        await prepared_of(engine, request)
    engine = new_engine(tmp_path, trust_request_chat_template=True)
    with pytest.raises(RuntimeError, match="in a worker process only"):
        await prepared_of(engine, request)
    engine.is_isolated = True  # as in a worker process
    prepared = await prepared_of(engine, request)
    assert prepared.prompts[0].text == "<Hello!>"


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
