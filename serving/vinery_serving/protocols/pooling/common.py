"""What the bodies of embeddings, rerank and score share."""

from array import array
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Protocol, get_args

from pydantic import BeforeValidator, Field

from vinery_serving.core.dialects import V1
from vinery_serving.core.pooling import PoolingRequest, PoolingResult, Truncation
from vinery_serving.core.tasks import Endpoint
from vinery_serving.core.unused import Unused
from vinery_serving.protocols.common.limited import Identifier
from vinery_serving.protocols.common.metadata import Priority, RequestId
from vinery_serving.protocols.common.numbers import with_numbers
from vinery_serving.protocols.common.parameters import MODEL, ModelName, parameter
from vinery_serving.protocols.common.reading import (
    Wire,
    WireT,
    invalid,
    read_model,
    read_object,
    refusal,
)
from vinery_serving.protocols.common.refused import REFUSED
from vinery_serving.protocols.common.unknown_fields import unknown_fields, unused_fields

# Of vLLM: as many tokens as the model takes.
_ALL_THAT_FIT: Final = -1
# Cohere's words for the side that is cut, in upper case.
Side = Literal["NONE", "START", "END"]
_NO_SIDE: Final = "must be true, false, 'NONE', 'START' or 'END'"
_BELOW_ZERO: Final = "must be at least 0: a request cannot move ahead of the default priority"


def _check_truncate(value: object) -> object:
    """One sentence for both types: a union would name each of them."""
    if not (value is None or isinstance(value, bool) or value in get_args(Side)):
        raise invalid(_NO_SIDE)
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

    model: ModelName | None = parameter(MODEL, "OAVF OV V")
    user: Identifier | None = parameter(
        "The end user, for limits and reports of usage.", "AVF V V", changes_nothing=True
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
            "VF V V",
            wrong=[(0, "must be at least 1, or -1 for as many as the model takes")],
        )
    )
    truncation_side: Literal["left", "right"] | None = parameter(
        "The side that is cut. Default: `right`.", "V V V"
    )
    priority: Priority | None = parameter(
        "The keys take turns, whatever it is.",
        "VF V V",
        wrong=[(-1, _BELOW_ZERO)],
        changes_nothing=True,
    )
    request_id: RequestId | None = parameter(
        "The client's id of the request.", "VF V V", changes_nothing=True
    )
    cache_salt: Identifier | None = parameter(
        "Vectors and scores are not cached.", "V V V", changes_nothing=True
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


def read_pooling_body(endpoint: Endpoint, model: type[WireT], body: bytes) -> tuple[WireT, Unused]:
    """Return a body as `model`, and what of it takes no effect.

    Raises `UnsupportedParameter` for the first refused parameter, then `InvalidRequest` for the
    first error.
    """
    sent, refused = read_object(body), REFUSED[endpoint]
    for name, value in sent.items():
        if name in refused:
            refused[name].check(name, value)
    members = {name: value for name, value in sent.items() if name not in refused}
    wire = read_model(model, with_numbers(model, members, V1))
    return wire, unused_fields(unknown_fields(wire, members))


def float_of(vector: bytes) -> float:
    """Return the number of a vector that has one."""
    (number,) = array("f", vector)
    return number


def usage(num_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
