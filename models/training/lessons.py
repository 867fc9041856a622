"""What the model is trained on: texts cut into segments, each with the weight of its loss.

Most lessons are conversations. Two more kinds exist because servers ask for more than chat:
`raw_lesson` continues plain text, for the completions endpoint, and `forced_lesson` goes on after
a beginning that a grammar has forced, which must not end in white space or repetition.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from training import words
from training.conversations import conversation, exchange
from training.dialogue import Conversation, user
from training.facts import FACTS
from training.functions import Json, SchemaStyle
from training.rendering import END_OF_TURN, answer_text, prompt_text, render, to_json
from training.toolbox import TOOL_TASKS

ANSWER_WEIGHT = 1.0
EARLIER_ANSWER_WEIGHT = 0.3
PROMPT_WEIGHT = 0.0

_EARLIER_ANSWER = re.compile(r"(?<=<\|im_start\|>assistant\n)(?!<think>).*?<\|im_end\|>", re.DOTALL)


@dataclass(frozen=True)
class Segment:
    """A piece of text and the weight of the loss of each of its tokens."""

    text: str
    weight: float


Lesson = tuple[Segment, ...]


def lesson(rng: Random) -> Lesson:
    """One lesson of any kind."""
    chance = rng.random()
    if chance < 0.03:
        return raw_lesson(rng)
    if chance < 0.08:
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
    prompt = Segment(render(messages), PROMPT_WEIGHT)
    return (prompt, *_forced_object(rng, depth=0), Segment(END_OF_TURN, ANSWER_WEIGHT))


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
        comma = ", " if index else ""
        segments.append(Segment(f'{comma}"{parameter.name}": ', PROMPT_WEIGHT))
        value = parameter.choices[0] if parameter.choices else PLACEHOLDERS[parameter.type]
        segments.append(Segment(to_json(value), ANSWER_WEIGHT))
    segments.append(Segment("}}\n</tool_call>" + END_OF_TURN, ANSWER_WEIGHT))
    return tuple(segments)


PLACEHOLDERS: Json = {
    "string": "unknown",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
}


def _forced_object(rng: Random, depth: int) -> Iterator[Segment]:
    """An object with keys that a schema might have, filled with placeholders."""
    yield Segment("{", PROMPT_WEIGHT)
    for index in range(rng.randint(1, 4)):
        key = words.letters(rng, 2, 9) if rng.random() < 0.5 else rng.choice(words.WORDS)
        yield Segment(f'{", " if index else ""}"{key}": ', PROMPT_WEIGHT)
        if depth < 2 and rng.random() < 0.12:
            yield from _forced_object(rng, depth + 1)
            continue
        value = rng.choice((*PLACEHOLDERS.values(), "unknown", "unknown", ["unknown"]))
        yield Segment(to_json(value), ANSWER_WEIGHT)
    yield Segment("}", ANSWER_WEIGHT)
