"""The GenerationRequest of a completion body."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.request import RawPrompts

from .exchanges import completion


@table(
    "prompt, prompts",
    [
        ("Once", ("Once",)),
        (["Once", "Twice"], ("Once", "Twice")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1, 2], [0]], ((1, 2), (0,))),
    ],
)
def test_a_prompt_has_four_forms(prompt: Any, prompts: tuple[Any, ...]) -> None:
    assert completion(prompt=prompt).prompt == RawPrompts(prompts)


def test_every_prompt_gets_n_choices() -> None:
    assert completion(prompt=["a", "b", "c"], n=2).num_choices == 6


@table("dialect, limit", [(V1, 16), (V3, None)])
def test_the_default_length_depends_on_the_dialect(dialect: Dialect, limit: int | None) -> None:
    assert completion(dialect).stopping.max_tokens is None
    assert completion(dialect).stopping.default_max_tokens == limit
    assert completion(dialect, max_tokens=3).stopping.max_tokens == 3


def test_defaults_of_old_clients_are_accepted() -> None:
    defaults = {"echo": False, "suffix": None, "best_of": 1, "logprobs": None, "user": "u"}

    assert completion(**defaults) == completion()


@table("ids, prompts", [([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3)))])
def test_token_ids_go_before_the_prompt(ids: Any, prompts: tuple[Any, ...]) -> None:
    assert completion(prompt_token_ids=ids).prompt == RawPrompts(prompts)
    assert completion(prompt_token_ids=ids, prompt=None).prompt == RawPrompts(prompts)


def test_no_token_ids_leave_the_prompt() -> None:
    assert completion(prompt_token_ids=[]) == completion()


def test_a_prompt_can_be_echoed_with_nothing_after_it() -> None:
    request = completion(echo=True, max_tokens=0)

    assert request.prompt == RawPrompts(("Once",), echo=True)
    assert request.stopping.max_tokens == 0


def test_a_suffix_is_kept_beside_the_prompts() -> None:
    assert completion(suffix="end").prompt == RawPrompts(("Once",), suffix="end")
    assert completion(suffix="").prompt == RawPrompts(("Once",))
