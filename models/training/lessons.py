"""What the model is trained on: texts cut into segments, each with the weight of its loss.

Most lessons are conversations. Two more kinds exist because servers ask for more than chat:
`raw_lesson` continues plain text, for the completions endpoint, and `forced_lesson` goes on after
a beginning that a grammar has forced, which must not end in white space or repetition.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from training import words
from training.conversations import conversation, exchange
from training.dialogue import Conversation, Json, SchemaStyle, user
from training.facts import FACTS
from training.rendering import END_OF_TURN, answer_text, prompt_text, render, to_json
from training.toolbox import TOOL_TASKS

ANSWER_WEIGHT = 1.0
EARLIER_ANSWER_WEIGHT = 0.7
PROMPT_WEIGHT = 0.0
# Enough to prefer compact JSON to white space where a grammar allows both, and too little to
# ever prefer JSON to talk.
KEY_WEIGHT = 0.02

_EARLIER_ANSWER = re.compile(r"(?<=<\|im_start\|>assistant\n)(?!<think>).*?<\|im_end\|>", re.DOTALL)


@dataclass(frozen=True)
class Segment:
    """A piece of text and the weight of the loss of each of its tokens.

    A glued segment is tokenised together with the one before it, as text that a model writes in
    one go; a token across the seam belongs to the glued segment.
    """

    text: str
    weight: float
    is_glued: bool = False


Lesson = tuple[Segment, ...]


def lesson(rng: Random) -> Lesson:
    """One lesson of any kind."""
    chance = rng.random()
    if chance < 0.03:
        return raw_lesson(rng)
    if chance < 0.09:
        return forced_lesson(rng)
    return conversation_lesson(conversation(rng))


def conversation_lesson(talk: Conversation) -> Lesson:
    """The answer in full weight; earlier answers count a little, questions not at all."""
    answer = Segment(answer_text(talk) + END_OF_TURN, ANSWER_WEIGHT)
    return (*_prompt_segments(prompt_text(talk)), answer)


def _prompt_segments(prompt: str) -> Iterator[Segment]:
    """`prompt` cut at the earlier answers."""
    start = 0
    for match in _EARLIER_ANSWER.finditer(prompt):
        yield Segment(prompt[start : match.start()], PROMPT_WEIGHT)
        yield Segment(match.group(), EARLIER_ANSWER_WEIGHT)
        start = match.end()
    yield Segment(prompt[start:], PROMPT_WEIGHT)


def raw_lesson(rng: Random) -> Lesson:
    """Plain text without a template: a known text to go on with, or a question to answer."""
    if rng.random() < 0.5:
        text = rng.choice(FACTS).answer
        cut = rng.choice([match.start() for match in re.finditer(" ", text)])
        before, after = text[:cut], text[cut:]
    else:
        asked, answered = _plain_exchange(rng)
        joint = rng.choice((" ", "\n"))
        before, after = asked, joint + answered
    return (Segment(before, PROMPT_WEIGHT), Segment(after + END_OF_TURN, ANSWER_WEIGHT))


def _plain_exchange(rng: Random) -> tuple[str, str]:
    """A question and its answer, both plain text."""
    while True:
        item = exchange(rng)
        if len(item.messages) == 2 and not item.functions and not item.system:
            return item.messages[0]["content"], item.messages[1]["content"]


def forced_lesson(rng: Random) -> Lesson:
    """A JSON object or a tool call that a grammar forced where the model would have talked."""
    item = exchange(rng)
    messages = item.messages[:1]
    if rng.random() < 0.3:
        messages = (user(words.phrase(rng, 1, 6)),)
    if rng.random() < 0.4:
        return _forced_call(rng, messages)
    written = _forced_object(rng, depth=0)
    end = Segment(END_OF_TURN, ANSWER_WEIGHT, is_glued=True)
    return (Segment(render(messages), PROMPT_WEIGHT), *written, end)


def _forced_call(rng: Random, messages: tuple[Json, ...]) -> Lesson:
    """A call of an offered function that nobody asked for."""
    function = rng.choice(TOOL_TASKS)(rng).function
    prompt = render(messages, [SchemaStyle.pick(rng).declare(function)])
    segments = [
        Segment(prompt, PROMPT_WEIGHT),
        Segment(f'<tool_call>\n{{"name": "{function.name}", "arguments": {{', PROMPT_WEIGHT),
    ]
    required = [p for p in function.parameters if p.is_required]
    for index, parameter in enumerate(required):
        value = parameter.choices[0] if parameter.choices else PLACEHOLDERS[parameter.type]
        segments += _pair(parameter.name, value, index, len(required))
    end = Segment("}}\n</tool_call>" + END_OF_TURN, ANSWER_WEIGHT, is_glued=True)
    return (*segments, end)


PLACEHOLDERS: Json = {"string": "unknown", "integer": 0, "number": 0, "boolean": False, "array": []}


def _forced_object(rng: Random, depth: int) -> Iterator[Segment]:
    """An object with keys that a schema might have, filled with placeholders."""
    yield Segment("{" if depth == 0 else " {", KEY_WEIGHT, is_glued=depth > 0)
    num_keys = rng.randint(1, 4)
    for index in range(num_keys):
        key = words.letters(rng, 2, 9) if rng.random() < 0.5 else rng.choice(words.WORDS)
        if depth < 2 and rng.random() < 0.15:
            yield Segment(_key(key, index), KEY_WEIGHT, is_glued=True)
            yield from _forced_object(rng, depth + 1)
            yield Segment(_comma(index, num_keys), ANSWER_WEIGHT, is_glued=True)
            continue
        value = rng.choice((*PLACEHOLDERS.values(), "unknown", "unknown", ["unknown"]))
        yield from _pair(key, value, index, num_keys)
    yield Segment("}", ANSWER_WEIGHT, is_glued=True)


def _pair(key: str, value: Any, index: int, num_keys: int) -> Iterator[Segment]:
    """A key that a grammar forces, and a value that the model chooses and has to end."""
    yield Segment(_key(key, index), KEY_WEIGHT, is_glued=True)
    ending = _comma(index, num_keys)
    yield Segment(f" {to_json(value)}{ending}", ANSWER_WEIGHT, is_glued=True)


def _key(key: str, index: int) -> str:
    return f'{" " if index else ""}"{key}":'


def _comma(index: int, num_keys: int) -> str:
    return "," if index < num_keys - 1 else ""
