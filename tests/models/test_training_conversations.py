"""The conversations that the reference models learn from: same seed same talk, answers in sight."""

import json
from itertools import pairwise
from random import Random

from training.calls import two_calls
from training.conversations import KINDS, conversation
from training.dialogue import Conversation
from training.facts import FACTS, UNKNOWN
from training.lessons import conversation_lesson, forced_lesson, lesson
from training.memories import memory
from training.rendering import answer_text, prompt_text
from training.talk import counting, repeat

from tests.tables import table


def talks(count: int, seed: int = 7) -> list[Conversation]:
    rng = Random(seed)
    return [conversation(rng) for _ in range(count)]


def test_only_the_same_seed_gives_the_same_conversations_and_lessons():
    assert talks(200, seed=3) == talks(200, seed=3)
    assert talks(20, seed=3) != talks(20, seed=4)
    first, second = Random(9), Random(9)
    assert [lesson(first) for _ in range(200)] == [lesson(second) for _ in range(200)]


def test_every_kind_turns_up_within_a_thousand_conversations():
    kinds = {talk.kind for talk in talks(1000)}

    assert {"fact", "repeat", "count", "memory", "json", "one call", "two calls"} <= kinds
    assert {"tool answer", "system", "sum", "unknown", "no call: fact"} <= kinds


def test_a_call_names_an_offered_function_with_its_arguments():
    for talk in talks(1000):
        functions = [tool["function"] for tool in talk.tools or ()]
        declared = {each["name"]: each["parameters"] for each in functions}
        assert len(declared) == len(functions), "no two share a name"

        assert talk.answer["role"] == "assistant"
        for call in talk.answer.get("tool_calls", ()):
            schema = declared[call["function"]["name"]]
            arguments = set(call["function"]["arguments"])
            assert set(schema["required"]) <= arguments <= set(schema["properties"])


def test_answers_follow_from_what_was_asked():
    rng = Random(5)

    for _ in range(300):
        calls = next(m for m in two_calls(rng).messages if "tool_calls" in m)["tool_calls"]
        assert len(calls) >= 2
        question, answer = repeat(rng).messages
        assert answer["content"] in question["content"]
        numbers = [int(n) for n in counting(rng).messages[-1]["content"].split()]
        assert {abs(after - before) for before, after in pairwise(numbers)} <= {1}
        item = memory(rng)
        conversation = item.system + " ".join(m["content"] for m in item.messages[:-1])
        remembered = item.messages[-1]["content"].rstrip(".!").split()[-1]
        assert remembered in conversation or item.messages[-1]["content"] == "I will remember that."


def test_a_json_answer_is_json_on_one_line():
    answers = [talk.answer["content"] for talk in talks(1500) if talk.kind == "json"]

    assert answers
    assert all(json.dumps(json.loads(a), ensure_ascii=False) == a for a in answers)


def test_no_question_has_two_answers():
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


def test_a_lesson_is_the_prompt_and_the_answer_which_alone_is_rewarded():
    for talk in talks(100):
        *before, answer = parts = conversation_lesson(talk)

        assert "".join(part.text for part in parts) == (
            prompt_text(talk) + answer_text(talk) + "<|im_end|>"
        )
        assert answer.weight == 1
        assert all(part.weight == 0 for part in before if "<|im_start|>user" in part.text)


def test_a_forced_beginning_is_not_rewarded():
    rng = Random(2)

    for _ in range(100):
        parts = forced_lesson(rng)
        assert parts[0].weight == 0
        assert parts[-1].weight == 1
