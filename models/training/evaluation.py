"""Measures an exported model by exact answers, never by resemblance.

Five measurements: unseen conversations of the generator by kind, hand-written cases by group,
facts under sampling, replies forced into a JSON schema, and how much a draft model helps. The model
runs as in a server: continuous batching, token ids, no torch.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import openvino_genai as genai

from training.cases import SchemaCase, all_cases, schema_cases
from training.conversations import conversation
from training.dialogue import user
from training.facts import FACTS
from training.rendering import END_OF_TURN, answer_text, prompt_text, render


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; a temperature of zero is greedy.

    `draft_tokens` needs an engine with a draft. `json_schema` is JSON text that a grammar enforces.
    """

    max_new_tokens: int = 1100
    temperature: float = 0.0
    seed: int = 0
    draft_tokens: int = 0
    json_schema: str = ""


@dataclass(frozen=True)
class Reply:
    """A generated text without the end of the turn, and what it took."""

    text: str
    num_tokens: int
    num_steps: int


class Engine:
    """An exported model on the CPU, with a draft model if a folder for one is given."""

    def __init__(self, model: Path, *, draft: Path | None = None, num_threads: int = 1) -> None:
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": num_threads}
        if draft:
            properties["draft_model"] = genai.draft_model(
                str(draft), "CPU", INFERENCE_NUM_THREADS=num_threads
            )
        scheduler = genai.SchedulerConfig()
        self._pipeline = genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", properties)
        self._tokenizer = self._pipeline.get_tokenizer()

    def replies(self, prompts: Sequence[str], sampling: Sampling) -> list[Reply]:
        """The continuations of `prompts`, generated together and returned in their order.

        With sampling, the seed of each prompt is `sampling.seed` plus its position.
        """
        handles = [
            self._pipeline.add_request(index, self._ids(prompt), _config(sampling, index))
            for index, prompt in enumerate(prompts)
        ]
        tokens: list[list[int]] = [[] for _ in prompts]
        num_steps = [0] * len(prompts)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for index, handle in enumerate(handles):
                if handle.can_read():
                    tokens[index] += handle.read()[0].generated_ids
                    num_steps[index] += 1
        return [
            Reply(self._text(ids), len(ids), count)
            for ids, count in zip(tokens, num_steps, strict=True)
        ]

    def _ids(self, prompt: str) -> Any:
        return self._tokenizer.encode(prompt, add_special_tokens=False).input_ids

    def _text(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text.removesuffix(END_OF_TURN)


def _config(sampling: Sampling, index: int) -> Any:
    config = genai.GenerationConfig()
    config.max_new_tokens = sampling.max_new_tokens
    if sampling.temperature > 0:
        config.do_sample = True
        config.temperature = sampling.temperature
        config.rng_seed = sampling.seed + index
    if sampling.json_schema:
        grammar = genai.StructuredOutputConfig(json_schema=sampling.json_schema)
        config.structured_output_config = grammar
    if sampling.draft_tokens:
        config.num_assistant_tokens = sampling.draft_tokens
    return config


# -- Evaluation

NUM_PROMPTS_PER_BATCH = 32
GREEDY = Sampling()
MAX_SCHEMA_TOKENS = 200


@dataclass(frozen=True)
class Question:
    """A prompt with its expected text, under the heading its score is counted."""

    heading: str
    prompt: str
    expected: str


@dataclass(frozen=True)
class Miss:
    """A question that was answered otherwise."""

    question: Question
    text: str


@dataclass
class Score:
    """Right answers out of all, by heading, and the wrong ones."""

    num_right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    num_asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    misses: list[Miss] = field(default_factory=list)

    def count(self, question: Question, text: str) -> None:
        """Add one answer."""
        is_right = text == question.expected
        self.num_asked[question.heading] += 1
        self.num_right[question.heading] += is_right
        if not is_right:
            self.misses.append(Miss(question, text))

    def table(self) -> str:
        """One line per heading and one for the sum."""
        rows = [(name, self.num_right[name], asked) for name, asked in self.num_asked.items()]
        rows.sort()
        rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
        return "\n".join(f"  {name:<28} {right:>5} of {asked}" for name, right, asked in rows)


@dataclass(frozen=True)
class Speedup:
    """What a draft model does to some texts."""

    num_tokens: int
    num_steps: int
    num_changed: int


def generated_questions(count: int, seed: int) -> list[Question]:
    """`count` conversations of the generator; kinds are headed apart when reasoning is on.

    Conversations whose answer is drawn at random are left out.
    """
    rng = Random(seed)
    questions: list[Question] = []
    while len(questions) < count:
        talk = conversation(rng)
        if talk.kind.endswith("chance"):
            continue
        kind = "no call" if talk.kind.startswith("no call") else talk.kind
        heading = kind if talk.thought is None else f"{kind}, reasoning"
        questions.append(Question(heading, prompt_text(talk), answer_text(talk)))
    return questions


def case_questions() -> list[Question]:
    """The hand-written cases."""
    return [Question(case.group, case.prompt, case.expected) for case in all_cases()]


def fact_questions() -> list[Question]:
    """Every wording of every fact, without a system prompt."""
    return [
        Question("fact", render([user(text)]), fact.answer)
        for fact in FACTS
        for text in fact.questions
    ]


def score(engine: Engine, questions: Sequence[Question], sampling: Sampling = GREEDY) -> Score:
    """How many of `questions` the model answers exactly."""
    result = Score()
    for batch in _batches(questions):
        replies = engine.replies([question.prompt for question in batch], sampling)
        for question, reply in zip(batch, replies, strict=True):
            result.count(question, reply.text)
    return result


def schema_score(engine: Engine) -> Score:
    """How many replies under a schema's grammar end, within `MAX_SCHEMA_TOKENS`, as valid JSON."""
    result = Score()
    for case in schema_cases():
        schema = json.dumps(case.schema)
        sampling = Sampling(max_new_tokens=MAX_SCHEMA_TOKENS, json_schema=schema)
        (reply,) = engine.replies([case.prompt], sampling)
        ended = reply.text if _is_complete(reply.text, case) else ""
        heading = ", ".join(case.schema["required"])
        result.count(Question(heading, case.prompt, ended or "valid JSON"), reply.text)
    return result


def _is_complete(text: str, case: SchemaCase) -> bool:
    """Whether `text` is an object with the schema's keys; the grammar saw to the rest."""
    try:
        return sorted(json.loads(text)) == sorted(case.schema["required"])
    except ValueError:
        return False


def speedup(plain: Engine, drafted: Engine, draft_tokens: int) -> Speedup:
    """Tokens and steps of the hand-written cases with a draft, one case at a time."""
    without: list[Reply] = []
    with_draft: list[Reply] = []
    sampling = Sampling(draft_tokens=draft_tokens)
    for question in case_questions():
        without += plain.replies([question.prompt], GREEDY)
        with_draft += drafted.replies([question.prompt], sampling)
    return Speedup(
        num_tokens=sum(reply.num_tokens for reply in with_draft),
        num_steps=sum(reply.num_steps for reply in with_draft),
        num_changed=sum(a.text != b.text for a, b in zip(without, with_draft, strict=True)),
    )


def _batches(questions: Sequence[Question]) -> Iterable[Sequence[Question]]:
    for start in range(0, len(questions), NUM_PROMPTS_PER_BATCH):
        yield questions[start : start + NUM_PROMPTS_PER_BATCH]
