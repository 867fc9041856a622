"""The part of a body that all three endpoints have."""

from dataclasses import replace

from vinery_serving.core.dialects import Dialect
from vinery_serving.core.request import (
    PROMPT_FIELDS,
    Conversation,
    Endpoint,
    GenerationRequest,
    Grammar,
    RawPrompts,
)
from vinery_serving.core.unused import NOTHING_UNUSED, Unused
from vinery_serving.protocols.common.decoding import (
    SamplingFields,
    SearchFields,
    SpeculationFields,
    TokenFields,
)
from vinery_serving.protocols.common.formats import FormatFields
from vinery_serving.protocols.common.limited import refuse_long
from vinery_serving.protocols.common.media import MediaHashes, check_media, with_hashes
from vinery_serving.protocols.common.metadata import DeliveryFields, MetadataFields
from vinery_serving.protocols.common.parameters import parameter
from vinery_serving.protocols.common.prompting import EncodingFields
from vinery_serving.protocols.common.reading import refusal
from vinery_serving.protocols.common.stopping import StoppingFields


class GenerationBody(
    MetadataFields,
    EncodingFields,
    TokenFields,
    FormatFields,
    SpeculationFields,
    SearchFields,
    StoppingFields,
    SamplingFields,
    DeliveryFields,
):
    """The parameters of every generation endpoint."""

    mm_hashes: MediaHashes | None = parameter(
        "The SHA-256 of each picture, video and file, in their order, as 64 hex digits. A file "
        "with another one is refused; usage records have them.",
        of="FastDeploy",
    )
    include_reasoning: bool | None = parameter(
        "False leaves the reasoning out of the answer. Its tokens still count.", of="vLLM"
    )
    skip_special_tokens: bool | None = parameter(
        "False shows special tokens in the text. Reasoning and tool calls are then not parsed.",
        of="OVMS, vLLM",
    )
    spaces_between_special_tokens: bool | None = parameter(
        "No effect: only tokenizers that decode word by word add such spaces.",
        of="vLLM",
        changes_nothing=True,
    )

    def refuse_contradictions(self) -> None:
        """Raises `InvalidRequest` for fields that contradict or need each other."""
        self.refuse_min_above_max()
        if self.prompt_logprobs is not None and self.stream:
            raise refusal("prompt_logprobs", "are not available when `stream` is true")
        if self.stream_options is not None and not self.stream:
            raise refusal("stream_options", "is only allowed when `stream` is true")

    def hosted_features(self) -> tuple[str, ...]:
        """Return the features of OpenAI's service that the client asks for, and does not get."""
        return ("store",) if self.store else ()

    def _with_hosted(self, unused: Unused) -> Unused:
        hosted = self.hosted_features()
        return replace(unused, hosted=hosted) if hosted else unused

    def request(
        self,
        endpoint: Endpoint,
        prompt: Conversation | RawPrompts,
        dialect: Dialect,
        *,
        unused: Unused = NOTHING_UNUSED,
        grammar: Grammar | None = None,
        default_limit: int | None = None,
        shows_arrival: bool | None = None,
        parses_output: bool | None = None,
    ) -> GenerationRequest:
        """Return the request, independent of the protocol. Raises `InvalidRequest`."""
        refuse_long(PROMPT_FIELDS[endpoint], prompt.num_chars)
        if isinstance(prompt, Conversation):
            check_media(prompt, dialect, PROMPT_FIELDS[endpoint])
        prompt = with_hashes(prompt, self.mm_hashes or ())
        n, is_streamed = self.n or 1, bool(self.stream)
        return GenerationRequest(
            endpoint=endpoint,
            model=self.model,
            prompt=prompt,
            sampling=self.sampling(),
            stopping=self.stopping(dialect, is_streamed=is_streamed, default_limit=default_limit),
            n=n,
            beams=self.beams(n, dialect),
            assistance=self.speculation(),
            num_candidates=self.num_candidates(n, dialect, is_streamed=is_streamed),
            grammar=grammar,
            is_streamed=is_streamed,
            wants_progress=self.wants_progress,
            shows_arrival=shows_arrival,
            parses_output=parses_output,
            steering=self.steering(),
            logprobs=self.logprobs_options(),
            wants_token_ids=bool(self.return_token_ids),
            wants_prompt_text=bool(self.return_prompt_text),
            dialect=dialect,
            encoding=self.encoding(),
            hides_reasoning=self.include_reasoning is False,
            shows_special_tokens=self.skip_special_tokens is False,
            handling=replace(self.handling(), end_user=self.end_user),
            unused=self._with_hosted(unused),
        )
