"""Counts how often an export orders texts rightly, for wordings that training has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import openvino as ov
from tokenizers import Tokenizer

from training.similarity.texts import Meaning, meaning, other


@dataclass(frozen=True)
class Case:
    """A held-out wording, and texts from the nearest to the farthest."""

    query: str
    texts: tuple[str, str, str]


@dataclass(frozen=True)
class Result:
    """How many cases have the right order: paraphrase, same topic, other topic."""

    num_cases: int
    num_first: int  # the paraphrase is before both others
    num_apart: int  # the text of the same topic is before that of another topic
    misses: tuple[Case, ...]

    def table(self) -> str:
        return (
            f"paraphrase first: {self.num_first} of {self.num_cases}\n"
            f"same topic before another: {self.num_apart} of {self.num_cases}"
        )


def cases(seed: int, number: int) -> list[Case]:
    rng = Random(seed)
    return [_case(rng, meaning(rng)) for _ in range(number)]


def _case(rng: Random, one: Meaning) -> Case:
    near, far = (other(rng, one, is_near=is_near) for is_near in (True, False))
    texts = (rng.choice(one.wordings[:-1]), rng.choice(near.wordings), rng.choice(far.wordings))
    return Case(one.held_out, texts)


def evaluate(folder: Path, seed: int, number: int) -> Result:
    """Ask an export, one text or pair at a time."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = ov.Core().compile_model(folder / "openvino_model.xml", "CPU")
    is_reranker = "logits" in model.output(0).get_names()
    measure = _relevances if is_reranker else _cosines
    asked = cases(seed, number)
    values = [measure(model, tokenizer, each) for each in asked]
    is_first = [nearest > max(near, far) for nearest, near, far in values]
    is_apart = [near > far for _, near, far in values]
    misses = tuple(case for case, is_right in zip(asked, is_first, strict=True) if not is_right)
    return Result(number, sum(is_first), sum(is_apart), misses)


def _cosines(model: Any, tokenizer: Tokenizer, case: Case) -> Sequence[float]:
    query, *texts = (_vector(model, tokenizer, each) for each in (case.query, *case.texts))
    return [float(query @ each) for each in texts]


def _vector(model: Any, tokenizer: Tokenizer, text: str) -> Any:
    vector = model(_inputs(model, tokenizer.encode(text)))[0][0].mean(axis=0)
    return vector / np.linalg.norm(vector)


def _relevances(model: Any, tokenizer: Tokenizer, case: Case) -> Sequence[float]:
    pairs = [tokenizer.encode(case.query, each) for each in case.texts]
    return [float(model(_inputs(model, each))[0][0, 0]) for each in pairs]


def _inputs(model: Any, encoded: Any) -> dict[str, Any]:
    values = {
        "input_ids": encoded.ids,
        "attention_mask": encoded.attention_mask,
        "token_type_ids": encoded.type_ids,
    }
    names = {each.get_any_name() for each in model.inputs}
    return {name: np.array([values[name]], np.int64) for name in names}
