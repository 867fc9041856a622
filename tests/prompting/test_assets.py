"""A model's assets: chats and bare prompts become token ids."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Encoding, Rendering, Tool, ToolCall, ToolChoice, ToolMode
from vinery_serving.prompting.assets import ModelAssets

from . import templates
from .builders import (
    MODEL,
    a_calling_chat,
    a_chat,
    a_copy_of_the_model,
    a_message,
    with_tokens_around,
)

HI = a_chat(("user", "Hi"))
REASONING = a_chat(("user", "Hi"), template_kwargs={"enable_thinking": True})
CONTINUED = Rendering(adds_generation_prompt=False, continues_final_message=True)
DOCUMENTED = Rendering(documents=({"title": "T", "text": "Grapes are sweet."},))
ASSETS = ModelAssets.load(MODEL)
TOKENIZER = ASSETS.tokenizer


def continued(*turns):
    return a_chat(("user", "Hi"), *turns, rendering=CONTINUED)


def test_a_chat_becomes_the_ids_of_its_rendered_text_also_in_threads():
    prompt = ASSETS.render(HI)
    assert prompt.text is not None
    assert prompt.text.startswith("<|im_start|>user\nHi<|im_end|>")
    assert list(prompt.token_ids) == TOKENIZER.encode(prompt.text)
    assert prompt.num_tokens == len(prompt.token_ids)

    chats = [a_chat(("user", f"Count to {n}.")) for n in range(40)]
    with ThreadPoolExecutor(4) as threads:
        prompts = list(threads.map(ASSETS.render, chats))
    assert prompts == [ASSETS.render(chat) for chat in chats]


@table(
    "chat, encoding, opens_reasoning",
    [
        (REASONING, Encoding(), True),
        (HI, Encoding(), False),
        # A tag in a message of the user, or one that was cut off, does not count.
        (a_chat(("user", "What is <think>")), Encoding(), False),
        (REASONING, Encoding(max_tokens=4), True),
        (REASONING, Encoding(max_tokens=4, keeps_start=True), False),
        # Reasoning can be continued.
        (continued(("assistant", "<think>Let me")), Encoding(), True),
        (continued(("assistant", "<think>So</think>Yes")), Encoding(), False),
    ],
)
def test_a_prompt_that_ends_inside_reasoning_is_marked(chat, encoding, opens_reasoning):
    assert ASSETS.render(chat, encoding).opens_reasoning is opens_reasoning


def test_a_raw_text_and_ids_are_not_changed():
    prompt = ASSETS.encode_prompt("Once upon")
    assert prompt.text == "Once upon"
    assert list(prompt.token_ids) == TOKENIZER.encode_raw("Once upon")
    assert not prompt.opens_reasoning

    prompt = ASSETS.encode_prompt((5, 6, 3071))
    assert prompt.token_ids == (5, 6, 3071)
    assert prompt.text is None


@table(
    "prompt, param, words",
    [
        ([5, -1], "prompt", "names the token -1"),
        ([5, 3072], "prompt", "names the token 3072"),
        ("", "prompt", "empty"),
        ([], "prompt", "empty"),
        ((), "prompt", "empty"),
        ("a\ud83d", "prompt", "surrogate"),
    ],
)
def test_a_prompt_that_is_no_text_of_the_model_is_refused(prompt, param, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        ASSETS.encode_prompt(prompt)

    assert caught.value.param == param
    assert "token" not in words or caught.value.code == "invalid_value"


@table(
    "chat, param, words",
    [
        (a_chat(("user", "a\ud83d")), "messages", "surrogate"),
        (a_chat(token_ids=(5, 3072)), "prompt_token_ids", "names the token 3072"),
        (a_chat(("user", "Hi"), rendering=DOCUMENTED), "documents", "documents"),
        *(
            (continued(last), "continue_final_message", "can be continued")
            for last in (
                a_message("tool", "x", tool_call_id="call_1"),
                a_message("assistant", tool_calls=(ToolCall("call_1", "f", "{}"),)),
                a_message("system", "x"),
            )
        ),
    ],
)
def test_a_chat_that_cannot_be_rendered_is_refused_by_its_field(chat, param, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        ASSETS.render(chat)

    assert caught.value.param == param
    assert isinstance(caught.value, UnsupportedParameter) == (param == "documents")


# -- Templates of the folder --------------------------------------------------------------


def assets_with(tmp_path, **files: str) -> ModelAssets:
    path = a_copy_of_the_model(tmp_path / "m", without=("chat_template.jinja", "*tokenizer.xml"))
    for name, text in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.with_suffix(".jinja").write_text(text)
    return ModelAssets.load(path)


def assets_with_tools(tmp_path, template: str) -> ModelAssets:
    return assets_with(
        tmp_path, chat_template=templates.CHATML, additional_chat_templates__tool_use=template
    )


def test_without_a_chat_template_a_model_cannot_chat_but_completes(tmp_path):
    assets = assets_with(tmp_path)

    with pytest.raises(InvalidRequest, match=r"no chat template.*/completions"):
        assets.render(HI)

    assert assets.template_text is None
    assert assets.encode_prompt("Hi").token_ids


def test_requests_with_tools_or_earlier_calls_get_the_template_for_tools(tmp_path):
    with_tools = a_chat(("user", "Hi"), tools=(Tool("ping"),))
    assets = assets_with_tools(tmp_path / "a", templates.TOOLS)
    assert assets.render(HI).text == "<|user|>Hi\n<|assistant|>"
    assert assets.render(with_tools).text.startswith('[{"type"')
    assert assets.template_text == templates.TOOLS

    assets = assets_with_tools(tmp_path / "b", templates.LISTED_TOOLS)
    unused = replace(with_tools, tool_choice=ToolChoice(ToolMode.NONE))
    assert assets.render(a_calling_chat("{}")).text == "<user>Hi<assistant>get_weather{}<tool>Sunny"
    assert assets.render(unused).text == "<|user|>Hi\n<|assistant|>"


def test_a_template_that_renders_nothing_or_hides_what_is_continued_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="empty"):
        assets_with(tmp_path / "a", chat_template="{{ '' }}").render(HI)
    assets = assets_with(tmp_path / "b", chat_template="{{ messages[0].content }}")
    with pytest.raises(UnsupportedParameter, match="cannot be continued"):
        assets.render(continued(("assistant", "The")))


def test_documents_reach_a_template_that_takes_them(tmp_path):
    shown = "{% for d in documents or [] %}[{{ d.text }}]{% endfor %}{{ messages[0].content }}"
    assets = assets_with(tmp_path, chat_template=shown)
    chat = a_chat(("user", "Hi"), rendering=DOCUMENTED)

    assert assets.render(chat).text == "[Grapes are sweet.]Hi"
    assert assets.render(HI).text == "Hi"


# -- Cutting, and the special tokens around a text ----------------------------------------


def test_special_tokens_surround_raw_prompts_also_cut_ones_unless_a_request_differs(tmp_path):
    path = a_copy_of_the_model(tmp_path / "m", without=("openvino_tokenizer*",))
    assets = ModelAssets.load(with_tokens_around(path, has_end=True))
    plain = tuple(assets.tokenizer.encode("one two three"))
    bare, chat = Encoding(adds_special_tokens=False), Encoding(adds_special_tokens=True)
    assert assets.encode_prompt("one two three").token_ids == (1, *plain, 2)
    cut = assets.encode_prompt("one two three", Encoding(max_tokens=4))
    assert cut.token_ids == (1, *plain[-2:], 2)
    assert assets.encode_prompt("one two three", bare).token_ids == plain
    rendered = assets.render(HI).token_ids
    assert assets.render(HI, chat).token_ids == (1, *rendered, 2)
    raw = a_chat(("user", "one two three"), rendering=Rendering(uses_template=False))
    assert assets.render(raw).token_ids == (1, *plain, 2)
    assert assets.render(raw, bare).token_ids == plain


@table("keeps_start, kept", [(False, slice(-3, None)), (True, slice(None, 3))])
def test_of_too_many_tokens_one_end_is_kept_in_all_kinds_of_prompts(keeps_start, kept):
    text = "one two three four five"
    whole = ASSETS.encode_prompt(text)
    cut = ASSETS.encode_prompt(text, Encoding(max_tokens=3, keeps_start=keeps_start))
    assert cut.token_ids == whole.token_ids[kept]
    assert cut.text is None
    assert ASSETS.text_of(cut) == TOKENIZER.decode(whole.token_ids[kept])

    assert ASSETS.encode_prompt("one", Encoding(max_tokens=9)) == ASSETS.encode_prompt("one")
    assert ASSETS.encode_prompt((5, 6, 7, 8), Encoding(max_tokens=2)).token_ids == (7, 8)
    whole = ASSETS.render(HI).token_ids
    assert ASSETS.render(HI, Encoding(max_tokens=4)).token_ids == whole[-4:]


# -- Chats without a template, and continued messages -------------------------------------


def test_token_ids_replace_a_chat():
    whole = ASSETS.render(REASONING)

    prompt = ASSETS.render(a_chat(token_ids=whole.token_ids))

    assert prompt.token_ids == whole.token_ids
    assert prompt.opens_reasoning
    assert ASSETS.text_of(prompt) == whole.text


USER = "<|im_start|>user\nHi<|im_end|>\n"


@table(
    "chat, text",
    [
        # Without a template, a chat is the text of its messages.
        (
            a_chat(("system", "Be "), ("user", "it."), rendering=Rendering(uses_template=False)),
            "Be it.",
        ),
        (a_chat(("user", "Hi"), rendering=Rendering(adds_generation_prompt=False)), USER),
        # A message that is continued has no end.
        *(
            (continued(("assistant", begun)), f"{USER}<|im_start|>assistant\n{begun}")
            for begun in ("The answer", "The answer is ", "", "a <|im_end|> b", "\n x\n")
        ),
        (a_chat(("user", "How m"), rendering=CONTINUED), "<|im_start|>user\nHow m"),
    ],
)
def test_a_request_decides_how_a_chat_is_shown(chat, text):
    prompt = ASSETS.render(chat)

    assert prompt.text == text
    assert not prompt.opens_reasoning


# -- Texts to tokens and back -------------------------------------------------------------


PLAIN = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


@given(PLAIN, st.text("ab <>|im_startend\n", max_size=60))
def test_a_text_comes_back_from_its_tokens_also_those_of_special_tokens(text, special):
    ids = ASSETS.ids_of_text(text)

    assert ASSETS.text_of_ids(ids) == text
    assert ASSETS.ids_of_text(ASSETS.text_of_ids(ids)) == ids
    assert ASSETS.text_of_ids(ASSETS.ids_of_text(special)) == special


@given(st.text(max_size=40), st.integers(1, 12), st.booleans())
def test_a_cut_text_is_one_end_of_the_whole(text, limit, keeps_start):
    text = text.encode(errors="ignore").decode()
    whole = list(ASSETS.ids_of_text(text))

    cut = ASSETS.ids_of_text(text, Encoding(max_tokens=limit, keeps_start=keeps_start))

    assert list(cut) == (whole[:limit] if keeps_start else whole[-limit:])


def test_a_model_pads_with_its_padding_token_or_its_end_token(tmp_path):
    assert ASSETS.pad_id == 0
    other = a_copy_of_the_model(tmp_path / "m")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        config = json.loads((other / name).read_text())
        config.pop("pad_token", None)
        (other / name).write_text(json.dumps(config))
    assert ModelAssets.load(other).pad_id == 2
