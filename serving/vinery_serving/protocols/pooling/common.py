"""What the bodies of embeddings, rerank and score share."""

from array import array
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Protocol, get_args

from pydantic import BeforeValidator, Field

from vinery_serving.core.pooling import PoolingRequest, PoolingResult, Truncation
from vinery_serving.protocols.common.encoding import Answer
from vinery_serving.protocols.common.limited import Identifier
from vinery_serving.protocols.common.metadata import Priority, RequestId
from vinery_serving.protocols.common.parameters import EVERY_SYSTEM, MODEL, ModelName, parameter
from vinery_serving.protocols.common.reading import (
    Wire,
    invalid,
    refusal,
)

# Of vLLM: as many tokens as the model takes.
_ALL_THAT_FIT: Final = -1
# Cohere's words for the side that is cut, in upper case.
Side = Literal["NONE", "START", "END"]


def _check_truncate(value: object) -> object:
    """One sentence for both types: a union would name each of them."""
    if not (value is None or isinstance(value, bool) or value in get_args(Side)):
        raise invalid("must be true, false, 'NONE', 'START' or 'END'")
    return value


class PoolingExchange(Protocol):
    """A parsed body and the encoder of its answer."""

    @property
    def request(self) -> PoolingRequest: ...

    def body(self, result: PoolingResult, model: str, request_id: str) -> Iterator[bytes]:
        """Yield the parts of the answer's JSON. Each takes little time."""
        ...


class PoolingBody(Wire):
    """The parameters of all three."""

    model: ModelName | None = parameter(MODEL, of=EVERY_SYSTEM)
    user: Identifier | None = parameter(
        "The end user, for limits and reports of usage.",
        of="OpenAI, vLLM, FastDeploy",
        changes_nothing=True,
    )
    truncate: Annotated[bool | Side, BeforeValidator(_check_truncate)] | None = parameter(
        "What happens to a text that is too long: refused (false, `NONE`, the default), or cut "
        "at its end (true, `END`) or at its start (`START`)."
    )
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = parameter(
        "The side that is cut. Default: `right`."
    )
    truncate_prompt_tokens: Annotated[int, Field(ge=_ALL_THAT_FIT, le=2**31 - 1)] | None = (
        parameter(
            "Cuts each text to this many tokens; -1: to as many as the model takes.",
            of="vLLM, FastDeploy",
        )
    )
    truncation_side: Literal["left", "right"] | None = parameter(
        "The side that is cut. Default: `right`.", of="vLLM"
    )
    priority: Priority | None = parameter(
        "The keys take turns, whatever it is.",
        of="vLLM, FastDeploy",
        changes_nothing=True,
    )
    request_id: RequestId | None = parameter(
        "The client's id of the request.", of="vLLM, FastDeploy", changes_nothing=True
    )
    cache_salt: Identifier | None = parameter(
        "Vectors and scores are not cached.", of="vLLM", changes_nothing=True
    )

    def truncation(self) -> Truncation | None:
        """Raises `InvalidRequest` for parameters that contradict each other."""
        tokens, truncate = self.truncate_prompt_tokens, self.truncate
        if tokens == 0:
            raise refusal(
                "truncate_prompt_tokens",
                "must be at least 1, or -1 for as many as the model takes",
            )
        if tokens is not None and truncate in (False, "NONE"):
            raise refusal("truncate", "contradicts `truncate_prompt_tokens`: send one of them")
        if tokens is None and truncate in (None, False, "NONE"):
            return None
        side = self.truncation_side or (self.truncation_direction or "").lower()
        if side and truncate in ("START", "END") and (side == "left") != (truncate == "START"):
            raise refusal("truncate", "names another side than the other parameter")
        keeps_start = truncate != "START" and side != "left"
        limit = None if tokens in (None, _ALL_THAT_FIT) else tokens
        return Truncation(limit, keeps_start=keeps_start)


def float_of(vector: bytes) -> float:
    """Return the number of a vector that has one."""
    (number,) = array("f", vector)
    return number


class PoolingUsage(Answer, kw_only=True):
    prompt_tokens: int
    total_tokens: int


def usage(num_tokens: int) -> PoolingUsage:
    return PoolingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
