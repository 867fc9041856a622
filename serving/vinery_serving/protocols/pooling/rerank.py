"""`/rerank` with the bodies and answers of Cohere and Jina, and `/score` with vLLM's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, UnsetType
from pydantic import Field, PlainValidator

from vinery_serving.core import field_limits
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.pooling import PoolingRequest, PoolingResult, TextPair
from vinery_serving.core.tasks import Endpoint
from vinery_serving.core.unused import Unused
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.encoding import Answer, json_bytes
from vinery_serving.protocols.common.limited import Limited, Text, refuse_long
from vinery_serving.protocols.common.parameters import parameter
from vinery_serving.protocols.common.prompting import ManyTexts, read_texts
from vinery_serving.protocols.common.reading import Wire, invalid, refusal
from vinery_serving.protocols.pooling.common import (
    PoolingBody,
    PoolingUsage,
    float_of,
    usage,
)

COHERES_DOCUMENT_TOKENS: Final = 4096  # the default of the second version of its API
_LIMIT: Final = Limited(field_limits.PROMPTS)
_NO_DOCUMENTS: Final = "must be an array of strings, or of objects with `text`"


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the client sent it, and its text."""

    text: str
    fields: Mapping[str, Any]  # empty for a plain text

    @property
    def as_object(self) -> Mapping[str, Any]:
        return self.fields or {"text": self.text}


def _read_documents(value: object) -> tuple[Document, ...]:
    if not isinstance(value, list):
        raise invalid(_NO_DOCUMENTS)
    if not value:
        raise invalid("must not be empty")
    _LIMIT.check(value)
    return tuple(map(_read_document, value))


def _read_document(value: object) -> Document:
    if isinstance(value, str):
        return Document(value, {})
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return Document(value["text"], value)
    raise invalid(_NO_DOCUMENTS)


class _DocumentObject(Wire):
    """The schema of a document that is an object."""

    text: str


_Documents = Annotated[list[Text | _DocumentObject], Field(min_length=1), _LIMIT]
Documents = Annotated[
    tuple[Document, ...], PlainValidator(_read_documents, json_schema_input_type=_Documents)
]
Texts = Annotated[
    tuple[str, ...], PlainValidator(read_texts, json_schema_input_type=Text | ManyTexts)
]


class RerankBody(PoolingBody):
    """The parameters of rerank."""

    query: Text = parameter("What the documents are ranked for.", of="OVMS, vLLM", is_required=True)
    documents: Documents = parameter(
        "Texts, or objects with `text`. Other members of an object have no effect; the answer "
        "repeats them if it has the documents.",
        of="OVMS, vLLM",
        is_required=True,
    )
    top_n: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = parameter(
        "How many documents the answer has, the most relevant ones. Default: all.", of="OVMS, vLLM"
    )
    return_documents: bool | None = parameter(
        "Whether the answer repeats the documents. Default: false.", of="OVMS"
    )

    max_tokens_per_doc: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = parameter(
        "Cuts each document to so many tokens, without those of the query. Default under `/v2`: "
        f"{COHERES_DOCUMENT_TOKENS}, as Cohere has it; elsewhere: none."
    )

    def request(self, unused: Unused, max_document_tokens: int | None) -> PoolingRequest:
        """Raises `InvalidRequest`."""
        pairs = tuple(TextPair(self.query, each.text) for each in self.documents)
        refuse_long("documents", len(self.query) + sum(len(each.text) for each in self.documents))
        return PoolingRequest(
            Endpoint.RERANK,
            self.model,
            pairs,
            param="documents",
            truncation=self.truncation(),
            max_document_tokens=self.max_tokens_per_doc or max_document_tokens,
            unused=unused,
            end_user=self.user or "",
        )


class RankedDocument(Answer, kw_only=True):
    """A document, and how relevant it is: 0 to 1."""

    index: Annotated[int, Field(description="In `documents` of the request.")]
    relevance_score: float
    document: Mapping[str, Any] | UnsetType = UNSET


class ApiVersion(Answer, kw_only=True):
    """The version of Cohere's API that the answer has."""

    version: str = "2"


class BilledTokens(Answer, kw_only=True):
    """The tokens of all texts, with Cohere's names."""

    input_tokens: int
    output_tokens: int = 0


class RerankMeta(Answer, kw_only=True):
    """Cohere's data about the answer."""

    api_version: ApiVersion
    tokens: BilledTokens


class Rerank(Answer, kw_only=True):
    """The most relevant documents, the best one first."""

    id: str
    model: str
    object: Literal["list"] = "list"
    results: list[RankedDocument]
    usage: PoolingUsage
    meta: RerankMeta


class Score(Answer, kw_only=True):
    """How well two texts fit: 0 to 1."""

    index: int
    object: Literal["score"] = "score"
    score: float


class Scores(Answer, kw_only=True):
    id: str
    object: Literal["list"] = "list"
    model: str
    data: list[Score]
    usage: PoolingUsage


@dataclass(frozen=True, slots=True)
class RerankExchange:
    request: PoolingRequest
    top_n: int | None
    documents: tuple[Document, ...] | None  # None: the answer does not repeat them

    def body(self, result: PoolingResult, model: str, request_id: str) -> Iterator[bytes]:
        """Yield the answer's JSON: the members of Cohere's answers and of Jina's together."""
        scores = list(map(float_of, result.vectors))
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: self.top_n]
        answer = Rerank(
            id=request_id,
            model=model,
            results=[self._entry(index, scores[index]) for index in order],
            usage=usage(result.num_tokens),
            meta=RerankMeta(
                api_version=ApiVersion(), tokens=BilledTokens(input_tokens=result.num_tokens)
            ),
        )
        yield json_bytes(answer)

    def _entry(self, index: int, score: float) -> RankedDocument:
        document = UNSET if self.documents is None else self.documents[index].as_object
        return RankedDocument(index=index, relevance_score=score, document=document)


def parse_rerank(body: bytes, max_document_tokens: int | None = None) -> RerankExchange:
    """Read the body of `/rerank`, which may set another limit. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.RERANK, RerankBody, body)
    documents = wire.documents if wire.return_documents else None
    return RerankExchange(wire.request(unused, max_document_tokens), wire.top_n, documents)


_SOURCES: Final = (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"))


class ScoreBody(PoolingBody):
    """The parameters of score: one text and several, or as many of each."""

    text_1: Texts | None = parameter("One text, or several.", of="vLLM")
    text_2: Texts | None = parameter(
        "The texts beside them: as many, or any number beside one text.",
        of="vLLM",
    )
    queries: Texts | None = parameter("The same as `text_1`.", of="vLLM")
    documents: Texts | None = parameter("The same as `text_2`.", of="vLLM")
    data_1: Texts | None = parameter("The same as `text_1`.", of="vLLM")
    data_2: Texts | None = parameter("The same as `text_2`.", of="vLLM")

    def request(self, unused: Unused) -> PoolingRequest:
        """Raises `InvalidRequest`."""
        names, first, second = self._texts()
        if len(first) == 1:
            first *= len(second)
        if len(first) != len(second):
            raise refusal(
                names[1],
                f"has {len(second)} texts beside {len(first)}: send as many, or one `{names[0]}`",
            )
        pairs = tuple(map(TextPair, first, second))
        refuse_long(names[1], sum(map(len, first)) + sum(map(len, second)))
        return PoolingRequest(
            Endpoint.SCORE,
            self.model,
            pairs,
            param=names[1],
            truncation=self.truncation(),
            unused=unused,
            end_user=self.user or "",
        )

    def _texts(self) -> tuple[tuple[str, str], tuple[str, ...], tuple[str, ...]]:
        given = [names for names in _SOURCES if any(getattr(self, each) for each in names)]
        names = given[0] if given else _SOURCES[0]
        if len(given) > 1:
            raise refusal(given[1][0], f"cannot go with `{names[0]}`: send one of them")
        first, second = (getattr(self, each) for each in names)
        for name, texts in zip(names, (first, second), strict=True):
            if texts is None:
                raise MissingParameter(f"`{name}` is required.", param=name)
        return names, first, second


@dataclass(frozen=True, slots=True)
class ScoreExchange:
    request: PoolingRequest

    def body(self, result: PoolingResult, model: str, request_id: str) -> Iterator[bytes]:
        """Yield the answer's JSON."""
        scores = enumerate(map(float_of, result.vectors))
        answer = Scores(
            id=request_id,
            model=model,
            data=[Score(index=index, score=score) for index, score in scores],
            usage=usage(result.num_tokens),
        )
        yield json_bytes(answer)


def parse_score(body: bytes) -> ScoreExchange:
    """Read the body of `/score`. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.SCORE, ScoreBody, body)
    return ScoreExchange(wire.request(unused))
