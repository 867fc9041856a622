"""The conversations that the reference models learn from: same seed same talk, answers in sight."""

import json
from itertools import pairwise
from random import Random

import pytest
from training.calls import two_calls
from training.conversations import KINDS, conversation
from training.dialogue import Conversation
from training.facts import FACTS, UNKNOWN
from training.lessons import conversation_lesson, forced_lesson, lesson
from training.memories import memory
from training.rendering import answer_text, prompt_text
from training.talk import counting, repeat


def talks(count: int, seed: int = 7) -> list[Conversation]:
    rng = Random(seed)
    return [conversation(rng) for _ in range(count)]


def test_the_same_seed_gives_the_same_conversations():
    assert talks(200, seed=3) == talks(200, seed=3)


def test_another_seed_gives_other_conversations():
    assert talks(20, seed=3) != talks(20, seed=4)


def test_every_kind_turns_up_within_a_thousand_conversations():
    kinds = {talk.kind for talk in talks(1000)}

    assert {"fact", "repeat", "count", "memory", "json", "one call", "two calls"} <= kinds
    assert {"tool answer", "system", "sum", "unknown", "no call: fact"} <= kinds


def test_a_conversation_ends_with_the_expected_answer():
    assert all(talk.answer["role"] == "assistant" for talk in talks(300))


def test_a_call_names_a_function_that_the_client_offers():
    for talk in talks(1000):
        offered = {tool["function"]["name"] for tool in talk.tools or ()}

        for call in talk.answer.get("tool_calls", ()):
            assert call["function"]["name"] in offered


def test_a_call_has_every_required_argument_and_no_other_than_declared():
    for talk in talks(1000):
        declared = {t["function"]["name"]: t["function"]["parameters"] for t in talk.tools or ()}

        for call in talk.answer.get("tool_calls", ()):
            schema = declared[call["function"]["name"]]
            arguments = set(call["function"]["arguments"])
            assert set(schema["required"]) <= arguments <= set(schema["properties"])


def test_no_two_offered_functions_share_a_name():
    for talk in talks(1000):
        names = [tool["function"]["name"] for tool in talk.tools or ()]

        assert len(names) == len(set(names))


def test_several_calls_are_at_least_two():
    rng = Random(5)

    for _ in range(300):
        calls = next(m for m in two_calls(rng).messages if "tool_calls" in m)["tool_calls"]
        assert len(calls) >= 2


def test_what_is_repeated_stands_in_the_question():
    rng = Random(5)

    for _ in range(300):
        question, answer = repeat(rng).messages
        assert answer["content"] in question["content"]


def test_the_remembered_name_was_given_before():
    rng = Random(5)

    for _ in range(300):
        item = memory(rng)
        conversation = item.system + " ".join(m["content"] for m in item.messages[:-1])
        remembered = item.messages[-1]["content"].rstrip(".!").split()[-1]
        assert remembered in conversation or item.messages[-1]["content"] == "I will remember that."


def test_a_count_goes_one_by_one():
    rng = Random(5)

    for _ in range(300):
        numbers = [int(n) for n in counting(rng).messages[-1]["content"].split()]
        assert {abs(after - before) for before, after in pairwise(numbers)} <= {1}


def test_a_json_answer_is_json_on_one_line():
    answers = [talk.answer["content"] for talk in talks(1500) if talk.kind == "json"]

    assert answers
    assert all(json.dumps(json.loads(a), ensure_ascii=False) == a for a in answers)


def test_no_question_has_two_answers():
    answers: dict[str, str] = {}
    for fact in FACTS:
        for question in fact.questions:
            assert answers.setdefault(question.lower().rstrip(".?!"), fact.answer) == fact.answer


def test_the_answer_to_everything_else_is_no_fact():
    assert UNKNOWN not in {fact.answer for fact in FACTS}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_an_exchange_begins_with_the_user_and_ends_with_the_assistant(make):
    rng = Random(11)

    for _ in range(50):
        messages = make(rng).messages
        assert messages[0]["role"] == "user"
        assert messages[-1]["role"] == "assistant"


def test_a_lesson_is_the_prompt_followed_by_the_answer():
    for talk in talks(100):
        text = "".join(part.text for part in conversation_lesson(talk))

        assert text == prompt_text(talk) + answer_text(talk) + "<|im_end|>"


def test_a_lesson_rewards_the_answer_and_never_the_question():
    for talk in talks(100):
        *before, answer = conversation_lesson(talk)

        assert answer.weight == 1
        assert all(part.weight == 0 for part in before if "<|im_start|>user" in part.text)


def test_a_forced_beginning_is_not_rewarded():
    rng = Random(2)

    for _ in range(100):
        parts = forced_lesson(rng)
        assert parts[0].weight == 0
        assert parts[-1].weight == 1


def test_lessons_are_the_same_for_the_same_seed():
    first, second = Random(9), Random(9)

    assert [lesson(first) for _ in range(200)] == [lesson(second) for _ in range(200)]
