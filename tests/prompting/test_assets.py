"""A model's assets: chats and bare prompts become token ids."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import (
    Encoding,
    Rendering,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)
from vinery_serving.prompting.assets import ModelAssets

from . import templates
from .builders import MODEL, a_calling_chat, a_chat, a_copy_of_the_model, a_message

HI = a_chat(("user", "Hi"))
ASSETS = ModelAssets.load(MODEL)


@pytest.fixture(scope="module")
def assets():
    return ASSETS


def test_a_chat_becomes_the_ids_of_its_rendered_text(assets):
    prompt = assets.render(HI)

    assert prompt.text is not None
    assert prompt.text.startswith("<|im_start|>user\nHi<|im_end|>")
    assert list(prompt.token_ids) == assets.tokenizer.encode(prompt.text)
    assert prompt.num_tokens == len(prompt.token_ids)


def test_a_prompt_that_ends_inside_reasoning_is_marked(assets):
    reasoning = a_chat(("user", "Hi"), template_kwargs={"enable_thinking": True})

    assert assets.render(reasoning).opens_reasoning
    assert not assets.render(HI).opens_reasoning


def test_a_tag_in_a_user_message_does_not_open_reasoning(assets):
    assert not assets.render(a_chat(("user", "What is <think>"))).opens_reasoning


def test_a_raw_text_is_not_changed(assets):
    prompt = assets.encode_prompt("Once upon")

    assert prompt.text == "Once upon"
    assert list(prompt.token_ids) == assets.tokenizer.encode_raw("Once upon")
    assert not prompt.opens_reasoning


def test_ids_are_not_changed(assets):
    prompt = assets.encode_prompt((5, 6, 3071))

    assert prompt.token_ids == (5, 6, 3071)
    assert prompt.text is None


@pytest.mark.parametrize("wrong", [-1, 3072])
def test_ids_outside_the_vocabulary_are_refused(assets, wrong):
    with pytest.raises(InvalidRequest, match=f"names the token {wrong}") as caught:
        assets.encode_prompt([5, wrong])

    assert caught.value.param == "prompt"
    assert caught.value.code == "invalid_value"


@pytest.mark.parametrize("empty", ["", [], ()])
def test_an_empty_prompt_is_refused(assets, empty):
    with pytest.raises(InvalidRequest, match="empty") as caught:
        assets.encode_prompt(empty)

    assert caught.value.param == "prompt"


def test_half_a_surrogate_pair_is_refused(assets):
    with pytest.raises(InvalidRequest, match="surrogate"):
        assets.encode_prompt("a\ud83d")
    with pytest.raises(InvalidRequest, match="surrogate"):
        assets.render(a_chat(("user", "a\ud83d")))


def test_prompts_can_be_rendered_in_threads(assets):
    chats = [a_chat(("user", f"Count to {n}.")) for n in range(40)]

    with ThreadPoolExecutor(4) as threads:
        prompts = list(threads.map(assets.render, chats))

    assert prompts == [assets.render(chat) for chat in chats]


def test_it_exposes_the_values_of_the_folder(assets):
    assert assets.folder.max_context == 2048
    assert assets.folder.defaults.eos_token_ids == (2,)
    assert "<tool_call>" in assets.template_text


def assets_with(tmp_path, **files: str) -> ModelAssets:
    path = a_copy_of_the_model(tmp_path / "m", without=("chat_template.jinja", "*tokenizer.xml"))
    for name, text in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.with_suffix(".jinja").write_text(text)
    return ModelAssets.load(path)


def test_without_a_chat_template_a_model_cannot_chat_but_completes(tmp_path):
    assets = assets_with(tmp_path)

    with pytest.raises(InvalidRequest, match=r"no chat template.*/completions"):
        assets.render(HI)

    assert assets.template_text is None
    assert assets.encode_prompt("Hi").token_ids


def test_requests_with_tools_get_the_template_for_tools(tmp_path):
    assets = assets_with(
        tmp_path,
        chat_template=templates.CHATML,
        additional_chat_templates__tool_use=templates.TOOLS,
    )

    assert assets.render(HI).text == "<|user|>Hi\n<|assistant|>"
    assert assets.render(a_chat(("user", "Hi"), tools=(Tool("ping"),))).text.startswith('[{"type"')
    assert assets.template_text == templates.TOOLS


def test_the_template_for_tools_renders_earlier_calls_and_no_request_without_tools(tmp_path):
    assets = assets_with(
        tmp_path,
        chat_template=templates.CHATML,
        additional_chat_templates__tool_use=templates.LISTED_TOOLS,
    )
    unused = a_chat(("user", "Hi"), tools=(Tool("ping"),), tool_choice=ToolChoice(ToolMode.NONE))

    assert assets.render(a_calling_chat("{}")).text == "<user>Hi<assistant>get_weather{}<tool>Sunny"
    assert assets.render(unused).text == "<|user|>Hi\n<|assistant|>"


def test_a_template_that_renders_nothing_is_refused(tmp_path):
    assets = assets_with(tmp_path, chat_template="{{ '' }}")

    with pytest.raises(InvalidRequest, match="empty"):
        assets.render(HI)


# Cutting, and the special tokens around a text


def assets_with_begin_and_end(tmp_path) -> ModelAssets:
    """The reference model, with a tokenizer that puts a token before and after every text."""
    path = a_copy_of_the_model(tmp_path / "m", without=("openvino_tokenizer*",))
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    names = {"<|im_start|>": 1, "<|im_end|>": 2}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": [id_], "tokens": [name]} for name, id_ in names.items()
        },
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return ModelAssets.load(path)


@pytest.mark.parametrize(
    ("keeps_start", "kept"), [(False, slice(-3, None)), (True, slice(None, 3))]
)
def test_of_too_many_tokens_one_end_is_kept(assets, keeps_start, kept):
    whole = assets.encode_prompt("one two three four five")

    cut = assets.encode_prompt(
        "one two three four five", Encoding(max_tokens=3, keeps_start=keeps_start)
    )

    assert cut.token_ids == whole.token_ids[kept]
    assert cut.text is None
    assert assets.text_of(cut) == assets.tokenizer.decode(whole.token_ids[kept])


def test_a_prompt_that_is_short_enough_is_not_cut(assets):
    assert assets.encode_prompt("one", Encoding(max_tokens=9)) == assets.encode_prompt("one")


@pytest.mark.parametrize("ids", [(5, 6, 7, 8)])
def test_ids_are_cut_as_well(assets, ids):
    assert assets.encode_prompt(ids, Encoding(max_tokens=2)).token_ids == (7, 8)


def test_cutting_keeps_the_special_tokens_around_a_text(tmp_path):
    assets = assets_with_begin_and_end(tmp_path)
    plain = assets.tokenizer.encode("one two three")

    assert assets.encode_prompt("one two three").token_ids == (1, *plain, 2)
    cut = assets.encode_prompt("one two three", Encoding(max_tokens=4))
    assert cut.token_ids == (1, *plain[-2:], 2)


def test_special_tokens_surround_raw_prompts_unless_a_request_differs(tmp_path):
    assets = assets_with_begin_and_end(tmp_path)
    plain = tuple(assets.tokenizer.encode("one"))
    bare, chat = Encoding(adds_special_tokens=False), Encoding(adds_special_tokens=True)

    assert assets.encode_prompt("one", bare).token_ids == plain
    rendered = assets.render(HI).token_ids
    assert assets.render(HI, chat).token_ids == (1, *rendered, 2)
    raw = a_chat(("user", "one"), rendering=Rendering(uses_template=False))
    assert assets.render(raw).token_ids == (1, *plain, 2)
    assert assets.render(raw, bare).token_ids == plain


def test_a_chat_can_be_cut(assets):
    whole = assets.render(HI)

    assert assets.render(HI, Encoding(max_tokens=4)).token_ids == whole.token_ids[-4:]


def test_an_opening_tag_that_was_cut_off_does_not_count(assets):
    reasoning = a_chat(("user", "Hi"), template_kwargs={"enable_thinking": True})

    assert assets.render(reasoning, Encoding(max_tokens=4)).opens_reasoning
    assert not assets.render(reasoning, Encoding(max_tokens=4, keeps_start=True)).opens_reasoning


# Chats without a template, and continued messages


def test_token_ids_replace_a_chat(assets):
    reasoning = a_chat(("user", "Hi"), template_kwargs={"enable_thinking": True})
    ids = assets.render(reasoning).token_ids

    prompt = assets.render(a_chat(token_ids=ids))

    assert prompt.token_ids == ids
    assert prompt.opens_reasoning
    assert assets.text_of(prompt) == assets.render(reasoning).text


def test_token_ids_of_a_chat_are_checked(assets):
    with pytest.raises(InvalidRequest, match="names the token 3072") as caught:
        assets.render(a_chat(token_ids=(5, 3072)))

    assert caught.value.param == "prompt_token_ids"


def test_without_its_template_a_chat_is_the_text_of_its_messages(assets):
    chat = a_chat(("system", "Be "), ("user", "brief."), rendering=Rendering(uses_template=False))

    assert assets.render(chat).text == "Be brief."


def test_the_generation_prompt_can_be_left_out(assets):
    chat = a_chat(("user", "Hi"), rendering=Rendering(adds_generation_prompt=False))

    assert assets.render(chat).text == "<|im_start|>user\nHi<|im_end|>\n"


CONTINUED = Rendering(adds_generation_prompt=False, continues_final_message=True)


@pytest.mark.parametrize("begun", ["The answer", "The answer is ", "", "a <|im_end|> b", "\n x\n"])
def test_a_message_that_is_continued_has_no_end(assets, begun):
    prompt = assets.render(a_chat(("user", "Hi"), ("assistant", begun), rendering=CONTINUED))

    assert prompt.text == f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{begun}"
    assert not prompt.opens_reasoning


def test_a_users_message_can_be_continued_too(assets):
    prompt = assets.render(a_chat(("user", "How m"), rendering=CONTINUED))

    assert prompt.text == "<|im_start|>user\nHow m"


@pytest.mark.parametrize(
    ("begun", "is_open"), [("<think>Let me", True), ("<think>So</think>Yes", False)]
)
def test_reasoning_can_be_continued(assets, begun, is_open):
    prompt = assets.render(a_chat(("user", "Hi"), ("assistant", begun), rendering=CONTINUED))

    assert prompt.opens_reasoning is is_open


@pytest.mark.parametrize(
    "last",
    [
        a_message("tool", "x", tool_call_id="call_1"),
        a_message("assistant", tool_calls=(ToolCall("call_1", "f", "{}"),)),
        a_message("system", "x"),
    ],
)
def test_other_messages_cannot_be_continued(assets, last):
    with pytest.raises(InvalidRequest, match="can be continued") as caught:
        assets.render(a_chat(("user", "Hi"), last, rendering=CONTINUED))

    assert caught.value.param == "continue_final_message"


def test_a_template_that_hides_the_last_message_cannot_continue_it(tmp_path):
    assets = assets_with(tmp_path, chat_template="{{ messages[0].content }}")
    chat = a_chat(("user", "Hi"), ("assistant", "The"), rendering=CONTINUED)

    with pytest.raises(UnsupportedParameter, match="cannot be continued"):
        assets.render(chat)


DOCUMENTED = Rendering(documents=({"title": "T", "text": "Grapes are sweet."},))


def test_documents_reach_a_template_that_takes_them(tmp_path):
    assets = assets_with(
        tmp_path,
        chat_template="{% for d in documents or [] %}[{{ d.text }}]{% endfor %}"
        "{{ messages[0].content }}",
    )

    assert (
        assets.render(a_chat(("user", "Hi"), rendering=DOCUMENTED)).text == "[Grapes are sweet.]Hi"
    )
    assert assets.render(HI).text == "Hi"


def test_documents_are_refused_where_the_template_would_lose_them(assets):
    with pytest.raises(UnsupportedParameter) as caught:
        assets.render(a_chat(("user", "Hi"), rendering=DOCUMENTED))

    assert caught.value.param == "documents"


# Texts to tokens and back


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_a_text_comes_back_from_its_tokens(text):
    ids = ASSETS.ids_of_text(text)

    assert ASSETS.text_of_ids(ids) == text
    assert ASSETS.ids_of_text(ASSETS.text_of_ids(ids)) == ids


@given(st.text("ab <>|im_startend\n", max_size=60))
def test_texts_of_special_tokens_come_back_too(text):
    assert ASSETS.text_of_ids(ASSETS.ids_of_text(text)) == text


@given(st.text(max_size=40), st.integers(1, 12), st.booleans())
def test_a_cut_text_is_one_end_of_the_whole(text, limit, keeps_start):
    text = text.encode(errors="ignore").decode()
    whole = list(ASSETS.ids_of_text(text))

    cut = ASSETS.ids_of_text(text, Encoding(max_tokens=limit, keeps_start=keeps_start))

    assert list(cut) == (whole[:limit] if keeps_start else whole[-limit:])


def test_it_pads_with_the_models_padding_token(assets, tmp_path):
    assert assets.pad_id == 0
    other = a_copy_of_the_model(tmp_path / "m")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        config = json.loads((other / name).read_text())
        config.pop("pad_token", None)
        (other / name).write_text(json.dumps(config))
    assert ModelAssets.load(other).pad_id == 2
