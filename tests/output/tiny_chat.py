"""The reference model in the real engine, asked directly, without a process between."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from vinery_serving.core import request as req
from vinery_serving.core.events import Event
from vinery_serving.core.result import ChoiceResult
from vinery_serving.grammars.answers import answer_grammar, tool_grammar
from vinery_serving.grammars.families.registry import by_name, detect
from vinery_serving.grammars.family import Family
from vinery_serving.output.detokenize import Detokenizer
from vinery_serving.output.reader import ChoiceReader
from vinery_serving.output.writer import EventWriter
from vinery_serving.prompting.assets import ModelAssets

from .builders import MODEL, choice_of


class Model:
    def __init__(self) -> None:
        import openvino
        import openvino_genai

        self._openvino, self._genai = openvino, openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 1
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(MODEL), scheduler, "CPU", {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}
        )
        self.assets = ModelAssets.load(MODEL)
        self.use(detect(self.assets.template_text))

    def use(self, family: Family) -> None:
        """Read and force answers of this family from now on."""
        self.family = family
        self._detokenizer = Detokenizer.keeping(
            self.assets.tokenizer.raw,
            self.assets.tokenizer.facts.special_texts,
            family.parser.special_texts,
        )

    def answer(self, chat: req.Conversation, wanted: req.Grammar | None = None) -> ChoiceResult:
        """Greedy. Fails when the answer does not end by itself."""
        result, is_ended = self.answer_part(chat, wanted)
        assert is_ended, "the model did not come to an end"
        return result

    def answer_part(
        self, chat: req.Conversation, wanted: req.Grammar | None = None, *, max_tokens: int = 400
    ) -> tuple[ChoiceResult, bool]:
        """The same with a limit, and whether the answer ended by itself."""
        events, is_ended = self.events(chat, wanted, max_tokens=max_tokens)
        return choice_of(events), is_ended

    def events(
        self, chat: req.Conversation, wanted: req.Grammar | None = None, *, max_tokens: int = 400
    ) -> tuple[list[Event], bool]:
        """The events of each token, and whether the answer ended by itself."""
        prompt = self.assets.render(chat)
        grammar = wanted and answer_grammar(
            self.family.grammar, wanted, opens_reasoning=prompt.opens_reasoning
        )
        grammar = grammar or tool_grammar(
            self.family.grammar,
            chat.tools,
            chat.tool_choice,
            parallel=chat.parallel_tool_calls,
            opens_reasoning=prompt.opens_reasoning,
        )
        ids = self._generate(prompt.token_ids, grammar, max_tokens)
        is_ended = ids[-1] in self.assets.tokenizer.facts.eos_ids
        writer = EventWriter(0, new_call_id=str, tools=chat.tools)
        parser = self.family.parser.new_parser(
            writer, chat.tools, opens_reasoning=prompt.opens_reasoning
        )
        reader = ChoiceReader(writer, self._detokenizer.new_decoder(), parser)
        events = [event for id_ in ids for event in reader.feed([id_])]
        return [*events, *reader.finish("stop" if is_ended else "length")], is_ended

    def _generate(
        self, prompt_ids: tuple[int, ...], grammar: req.Grammar | None, max_tokens: int
    ) -> list[int]:
        forced = {}
        if grammar is not None:
            field = {
                req.GrammarKind.STRUCTURAL_TAG: "structural_tags_config",
                req.GrammarKind.JSON_SCHEMA: "json_schema",
                req.GrammarKind.REGEX: "regex",
                req.GrammarKind.EBNF: "grammar",
            }[grammar.kind]
            forced = {field: grammar.source}
        [ids] = self.generate(prompt_ids, [self.new_config(max_tokens, **forced)])
        return ids

    def new_config(self, max_tokens: int, **forced: str) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.eos_token_id = 2
        if forced:
            config.structured_output_config = self._genai.StructuredOutputConfig(**forced)
        return config

    def generate(self, prompt_ids: Sequence[int], configs: Sequence[Any]) -> list[list[int]]:
        """Return an answer to the prompt for each configuration, in one batch."""
        tensor = self._openvino.Tensor(np.array([prompt_ids], dtype=np.int64))
        results = self._pipeline.generate([tensor] * len(configs), list(configs))
        return [result.m_generation_ids[0] for result in results]


@cache
def _engine() -> Model:
    return Model()


def reference_model() -> Model:
    """The one engine of all live tests, with the family of its own template."""
    model = _engine()
    model.use(detect(model.assets.template_text))
    return model


def straight(name: str) -> Family:
    """Return the family of this name without reasoning first. Some families may begin with
    reasoning under a grammar, too; the reference model never learned their marks, and would reason
    without end."""
    family = by_name(name)
    if not family.grammar.may_reason_first:
        return family
    return replace(family, grammar=replace(family.grammar, reasoning=None, may_reason_first=False))


def asked(
    question: str, *, tools: Sequence[req.Tool], thinking: bool = False, **fields: Any
) -> req.Conversation:
    message = req.Message(req.Role.USER, (req.TextPart(question),))
    kwargs = {"enable_thinking": True} if thinking else {}
    return req.Conversation((message,), tools=tools, template_kwargs=kwargs, **fields)


def calls_of(result: ChoiceResult) -> list[tuple[str, Any]]:
    """Names, and the values of the arguments."""
    return [(call.name, json.loads(call.arguments)) for call in result.tool_calls]
