"""A `tokenizers` tokenizer as the two OpenVINO graphs that an exported model folder holds.

`openvino_tokenizers.convert_tokenizer` insists on transformers; the pipeline steps that it is
made of do not. Only tokenizers of the form that `vocabulary` trains are understood: byte-level
BPE, NFC, and at most one token put before the text.
"""

from __future__ import annotations

import json
from typing import Any

from openvino import Model, Type
from openvino_tokenizers import tokenizer_pipeline as steps
from openvino_tokenizers.constants import UTF8ReplaceMode
from openvino_tokenizers.utils import (
    change_inputs_type,
    change_outputs_type,
    update_rt_info_with_environment,
)
from tokenizers import Tokenizer

from tests.random_models.vocabulary import Vocabulary, token_id


def tokenizer_graphs(
    tokenizer: Tokenizer, vocabulary: Vocabulary, chat_template: str, max_length: int
) -> tuple[Model, Model]:
    """The tokenizer and the detokenizer, both with 64-bit token ids."""
    pipeline = _pipeline(tokenizer, vocabulary, max_length)
    graphs = (
        change_outputs_type(_without_type_ids(pipeline.get_tokenizer_ov_subgraph()), Type.i64),
        change_inputs_type(pipeline.get_detokenizer_ov_subgraph(), Type.i64),
    )
    for graph in graphs:
        _describe(graph, tokenizer, vocabulary, chat_template)
    return graphs


def _pipeline(tokenizer: Tokenizer, vocabulary: Vocabulary, max_length: int) -> Any:
    content = json.loads(tokenizer.to_str())
    added = tokenizer.get_added_tokens_decoder()
    model = steps.BPETokenizationStep.from_hf_json(content)
    pipeline = steps.TokenizerPipeline()
    pipeline.add_steps(
        [
            steps.SpecialTokensSplit.from_string_iter(vocabulary.special_tokens),
            steps.NormalizeUnicode("NFC"),
            steps.RegexSplitStep.byte_level_splitter(vocabulary.has_single_digits),
            steps.BytesToCharsStep(),
            model,
            steps.TruncationStep(max_length),
            steps.CombineSegmentsStep(_segments(tokenizer, vocabulary)),
            steps.PaddingStep(
                token=vocabulary.pad,
                _token_id=token_id(tokenizer, vocabulary.pad),
                pad_right=False,
            ),
        ]
    )
    pipeline.vocab = model.vocab
    decoder = steps.VocabDecoderStep.from_hf_json(
        content,
        pipeline.vocab,
        added_tokens={id_: token.content for id_, token in added.items()},
        skip_tokens=list(added),
        is_byte_level=True,
    )
    pipeline.add_steps(
        [decoder, steps.CharsToBytesStep(), steps.UTF8ValidateStep(UTF8ReplaceMode.REPLACE)]
    )
    return pipeline


def _segments(tokenizer: Tokenizer, vocabulary: Vocabulary) -> list[Any]:
    if vocabulary.prefix is None:
        return [steps.Sequence()]
    prefix_id = token_id(tokenizer, vocabulary.prefix)
    return [steps.AddToken(token=vocabulary.prefix, _token_id=prefix_id), steps.Sequence()]


def _without_type_ids(graph: Model) -> Model:
    """Decoders take no token types, and the pipeline refuses a tokenizer that gives them."""
    kept = [graph.output("input_ids"), graph.output("attention_mask")]
    reduced = Model(kept, graph.get_parameters(), graph.get_friendly_name())
    reduced.add_sinks(graph.get_sinks())
    return reduced


def _describe(
    graph: Model, tokenizer: Tokenizer, vocabulary: Vocabulary, chat_template: str
) -> None:
    """The facts that a reader without `tokenizer_config.json` finds in the graph itself.

    The version must be there: without it the pipeline takes the graph for one from before
    2024.5 and ignores `add_special_tokens`.
    """
    update_rt_info_with_environment(graph)
    graph.set_rt_info(chat_template, "chat_template")
    graph.set_rt_info(token_id(tokenizer, vocabulary.end), "eos_token_id")
    graph.set_rt_info(token_id(tokenizer, vocabulary.pad), "pad_token_id")
    if vocabulary.prefix is not None:
        graph.set_rt_info(token_id(tokenizer, vocabulary.prefix), "bos_token_id")
