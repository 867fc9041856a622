"""Refuses requests that would break or overflow the pipeline, or that it does not support."""

from vinery_serving.engine.logits_handler import check_ids
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.engine.prefix_cache import TokenArray
from vinery_serving.transport.messages import LogitsSpec, Submit


def check_submit(submit: Submit, ids: TokenArray, pipeline: Pipeline, max_context: int) -> None:
    """Raises ValueError with the reason. `ids`: the prompt. `max_context`: 0 if it is unknown."""
    vocab_size = pipeline.vocab_size
    if len(ids) == 0:
        raise ValueError("The prompt is empty.")
    if int(ids.min()) < 0 or (vocab_size and int(ids.max()) >= vocab_size):
        raise ValueError(f"The prompt has token ids outside 0..{vocab_size - 1}.")
    # GenAI writes to the logits of stop tokens without checking the ids.
    if vocab_size and any(not 0 <= id_ < vocab_size for id_ in submit.stop_token_ids):
        raise ValueError(f"There are stop token ids outside 0..{vocab_size - 1}.")
    if max_context and len(ids) + min(1, submit.max_new_tokens) > max_context:
        raise ValueError(f"The prompt has {len(ids)} tokens; the model's context is {max_context}.")
    if pipeline.vision is not None:
        pipeline.vision.check(ids, submit.media)
        _check_undivided(pipeline.vision.num_undivided(submit.media), pipeline.max_step_tokens)
    elif submit.media:
        raise ValueError("This model takes text only.")
    if submit.cache_key is not None:
        _check_salt(submit, pipeline)
    if submit.logits is not None:
        _check_logits(submit.logits, pipeline)


def _check_undivided(num_tokens: int, max_step_tokens: int) -> None:
    """Half of a step is left for the streams beside a prompt."""
    most = max_step_tokens // 2
    if num_tokens > most:
        raise ValueError(
            f"This model's pictures must be within the first {most} tokens of a prompt, and the "
            f"last one ends at {num_tokens}. Send fewer pictures or less text before them, or ask "
            "the administrator for a larger max_num_batched_tokens."
        )


def _check_salt(submit: Submit, pipeline: Pipeline) -> None:
    if not pipeline.supports_cache_salt:
        raise ValueError("This model does not support cache_salt.")
    # The tokens before the first picture carry the salt.
    if submit.media and submit.media[0].start < 2:
        raise ValueError("The prompt must have a text before its first picture.")
    # GenAI would write to the logits of salted ids, which have none.
    if submit.beams is not None and submit.beams.no_repeat_ngram_size:
        raise ValueError("no_repeat_ngram_size does not work with a cache_salt.")


def _check_logits(spec: LogitsSpec, pipeline: Pipeline) -> None:
    if not pipeline.has_logits_hook:
        raise ValueError("The logits of this model cannot be read or changed.")
    if spec.prompt_logprobs is not None and not pipeline.can_score_prompts:
        raise ValueError("This model's prompts cannot be scored while enable_prefix_caching is on.")
    check_ids(spec, pipeline.vocab_size)
