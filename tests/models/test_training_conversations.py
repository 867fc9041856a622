"""The conversations that the reference models learn from, and their prompts, which are served."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

from training.calls import two_calls
from training.cases import all_cases
from training.conversations import KINDS, conversation
from training.dialogue import Conversation
from training.facts import FACTS, UNKNOWN
from training.lessons import conversation_lesson, forced_lesson, lesson
from training.memories import memory
from training.rendering import TEMPLATE_PATH, answer_text, call_text, prompt_text, render
from training.talk import counting, repeat

from tests.tables import table


def talks(count: int, seed: int = 7) -> list[Conversation]:
    rng = Random(seed)
    return [conversation(rng) for _ in range(count)]


def test_only_the_same_seed_gives_the_same_talks_of_all_kinds_whose_calls_are_offered():
    assert talks(200, seed=3) == talks(200, seed=3)
    assert talks(20, seed=3) != talks(20, seed=4)
    first, second = Random(9), Random(9)
    assert [lesson(first) for _ in range(200)] == [lesson(second) for _ in range(200)]

    kinds = {talk.kind for talk in talks(1000)}
    assert {"fact", "repeat", "count", "memory", "json", "one call", "two calls"} <= kinds
    assert {"tool answer", "system", "sum", "unknown", "no call: fact"} <= kinds

    for talk in talks(1000):
        functions = [tool["function"] for tool in talk.tools or ()]
        declared = {each["name"]: each["parameters"] for each in functions}
        assert len(declared) == len(functions), "no two share a name"

        assert talk.answer["role"] == "assistant"
        for call in talk.answer.get("tool_calls", ()):
            schema = declared[call["function"]["name"]]
            arguments = set(call["function"]["arguments"])
            assert set(schema["required"]) <= arguments <= set(schema["properties"])


def test_answers_follow_from_what_was_asked_are_json_on_one_line_and_no_question_has_two():
    rng = Random(5)

    for _ in range(300):
        assert len(next(m for m in two_calls(rng).messages if "tool_calls" in m)["tool_calls"]) >= 2
        question, answer = repeat(rng).messages
        assert answer["content"] in question["content"]
        numbers = [int(n) for n in counting(rng).messages[-1]["content"].split()]
        assert {abs(after - before) for before, after in pairwise(numbers)} <= {1}
        item = memory(rng)
        conversation = item.system + " ".join(m["content"] for m in item.messages[:-1])
        remembered = item.messages[-1]["content"].rstrip(".!").split()[-1]
        assert remembered in conversation or item.messages[-1]["content"] == "I will remember that."

    answers = [talk.answer["content"] for talk in talks(1500) if talk.kind == "json"]
    assert answers
    assert all(json.dumps(json.loads(a), ensure_ascii=False) == a for a in answers)

    answers: dict[str, str] = {}
    for fact in FACTS:
        assert fact.answer != UNKNOWN
        for question in fact.questions:
            assert answers.setdefault(question.lower().rstrip(".?!"), fact.answer) == fact.answer


@table("make", KINDS)
def test_an_exchange_begins_with_the_user_and_ends_with_the_assistant(make):
    rng = Random(11)

    for _ in range(50):
        messages = make(rng).messages
        assert messages[0]["role"] == "user"
        assert messages[-1]["role"] == "assistant"


def test_only_the_answer_of_a_lesson_is_rewarded_and_no_forced_beginning():
    for talk in talks(100):
        *before, answer = parts = conversation_lesson(talk)

        assert "".join(part.text for part in parts) == (
            prompt_text(talk) + answer_text(talk) + "<|im_end|>"
        )
        assert answer.weight == 1
        assert all(part.weight == 0 for part in before if "<|im_start|>user" in part.text)

    rng = Random(2)

    for _ in range(100):
        parts = forced_lesson(rng)
        assert parts[0].weight == 0
        assert parts[-1].weight == 1


MODELS = Path(__file__).resolve().parents[2] / "models"
NAMES = ("tiny-chat", "tiny-draft")


@table("name", NAMES)
def test_a_shipped_model_has_the_template_of_training_and_is_greedy(name):
    shipped = (MODELS / name / "chat_template.jinja").read_text(encoding="utf-8")
    defaults = json.loads((MODELS / name / "generation_config.json").read_text(encoding="utf-8"))

    assert shipped == TEMPLATE_PATH.read_text(encoding="utf-8")
    assert defaults["do_sample"] is False
    assert "temperature" not in defaults


def test_the_two_models_share_one_tokenizer():
    chat, draft = ((MODELS / name / "tokenizer.json").read_bytes() for name in NAMES)
    assert chat == draft


def test_every_case_has_a_prompt_and_an_answer_of_its_own():
    cases = list(all_cases())
    assert len({case.prompt for case in cases}) == len(cases)
    assert all(case.expected for case in cases)


def test_prompts_do_not_depend_on_how_a_server_trims_blocks(environment):
    template = environment.from_string(TEMPLATE_PATH.read_text(encoding="utf-8"))
    rng = Random(4)

    for _ in range(200):
        talk = conversation(rng)
        served = template.render(
            messages=list(talk.prompt),
            tools=list(talk.tools) if talk.tools else None,
            add_generation_prompt=True,
            enable_thinking=talk.thought is not None,
        )
        assert served == prompt_text(talk)


def test_a_past_call_is_rendered_as_the_model_should_write_it_after_tools_and_open_reasoning():
    messages = [{"role": "user", "content": "Hello"}]
    assert render(messages, enable_thinking=True).endswith("<think>\n")
    assert render(messages, enable_thinking=False).endswith("<think>\n\n</think>\n\n")

    tool = {"type": "function", "function": {"name": "ping", "parameters": {}}}
    messages = [{"role": "system", "content": "Be brief."}, *messages]
    assert render(messages, [tool]).startswith(
        '<|im_start|>system\nBe brief.\n\nTools:\n{"name": "ping", "parameters": {}}\n<|im_end|>'
    )

    call = {"type": "function", "function": {"name": "get_time", "arguments": {"city": "Łódź"}}}
    messages = [
        {"role": "user", "content": "What time is it in Łódź?"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
    ]

    prompt = render(messages, add_generation_prompt=False)
    assert f"{call_text(call)}\n{call_text(call)}<|im_end|>" in prompt
