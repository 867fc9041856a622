"""A generation goes on after the tokens that a lost engine has generated."""

from array import array
from typing import Any

import pytest
from msgspec import structs

from tests.engine import in_process
from tests.engine.in_process import LOGPROBS, done, logprobs, run, with_logits_handler
from tests.tables import table
from vinery_serving.core.errors import NotContinued
from vinery_serving.core.request import Sampling
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.generation import Generation
from vinery_serving.transport.messages import GrammarSpec, Known

pytestmark = pytest.mark.live

DIGITS = GrammarSpec("regex", "([0-9]{1,2} ){12}x")
SETTINGS: list[dict[str, Any]] = [
    {},
    {"sampling": Sampling(temperature=0.9, seed=5)},
    {"sampling": Sampling(frequency_penalty=0.3, presence_penalty=0.2)},
    {"sampling": Sampling(repetition_penalty=1.2)},
    {"grammar": DIGITS},
]


def generation(known: list[int] | None = None, **values: Any) -> Generation:
    """A new generation of 40 tokens, of which some are known."""
    result = in_process.generation("Count to 60.", **values)
    if known is None:
        return result
    is_replayed = bool(result.submit.sampling.temperature)
    given = Known(array("i", known).tobytes(), is_replayed)
    return with_logits_handler(Generation.of(None, structs.replace(result.submit, known=given)))


def goes_on(batch: Batch, num_known: int, values: dict[str, Any]) -> Generation:
    """Prove that the rest is what the lost engine would have generated. Returns the whole."""
    first = done(batch, generation(**values))
    num_known = min(num_known, len(first.tokens) - 1)

    assert done(batch, generation(first.tokens[:num_known], **values)).tokens == first.tokens
    return first


@pytest.mark.smoke
@table("num_known, values", zip([1, 7, 39, 1, 7], SETTINGS, strict=True))
def test_the_rest_is_what_the_lost_engine_would_have_generated(batch, num_known, values):
    goes_on(batch, num_known, values)


@table(
    "values",
    [
        {"sampling": Sampling(temperature=0.9, seed=5)},
        {"sampling": Sampling(frequency_penalty=0.3)},
        {"grammar": DIGITS},
    ],
)
def test_an_answer_that_would_not_be_the_same_ends_with_the_documented_error(batch, values):
    first = done(batch, generation(**values))
    others = [first.tokens[0], first.tokens[1] + 1, *first.tokens[2:5]]
    one = generation(others, **values)

    [failed] = run(batch, one)

    assert failed.code == NotContinued.code
    assert one.output().token_ids == ()  # nothing that does not follow the sent tokens


def test_only_the_rest_is_sent_with_its_log_probabilities(batch: Batch) -> None:
    first = done(batch, generation(logits=LOGPROBS))

    rest = done(batch, generation(first.tokens[:7], logits=LOGPROBS)).output()

    assert rest.token_ids == tuple(first.tokens[7:])
    assert logprobs(rest) == pytest.approx(logprobs(first)[7:], abs=1e-3)
