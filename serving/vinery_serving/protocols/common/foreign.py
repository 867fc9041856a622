"""The parameters of other servers, and what this one does with each of them.

A parameter that would change the answer is honoured as one of this server's own, if it means
exactly the same, or else refused with what to use instead. One that cannot change the answer is
accepted, and the header `x-vinery-ignored` names it. A field of the endpoint itself comes first:
the rows are for the endpoints that have no field of that name.

To add a parameter, add a row; `docs/parameters.md` and the OpenAPI document follow. The sources
are the servers' documents of 2026.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vinery_serving.protocols.common.aliases import (
    EFFORT,
    FORMAT,
    REASONING,
    REASONING_FORMAT,
    SAMPLED,
    THINKING,
    THINKS,
    Alias,
    same_as,
)
from vinery_serving.protocols.common.refused import Refused


@dataclass(frozen=True, slots=True)
class Harmless:
    """A parameter without effect here that cannot change the answer. `reason` is a sentence."""

    reason: str


Fate = Alias | Refused | Harmless


@dataclass(frozen=True, slots=True)
class Foreign:
    """One parameter, and the servers that have it."""

    name: str
    servers: str
    fate: Fate

    @property
    def outcome(self) -> tuple[str, str]:
        """What becomes of the parameter: a word, and sentences about it."""
        match self.fate:
            case Alias() as alias:
                return "honoured", alias.meaning
            case Harmless() as harmless:
                return "ignored", harmless.reason
            case Refused() as refused:
                return "refused", refused.message(self.name)


_LIMIT = same_as("max_tokens")
_BUDGET = same_as("thinking_token_budget")
_SAMPLER = "the engine has no such sampler; use `temperature`, `top_p`, `top_k` and `min_p`"
_PENALTY = "the engine has no such penalty; use `repetition_penalty` or `frequency_penalty`"
_WHOLE = "penalties apply to the whole prompt and answer"
_ORDER = "the engine has one order of its samplers"
_NO_MARK = "the engine samples tokens without a watermark"
_CONTEXT = (
    "a model's context is fixed when it is loaded, and GET /v1/models shows it; use "
    "`truncate_prompt_tokens` for shorter prompts"
)
_PARENT = "it takes the members of this object as fields of the body itself"
_NO_ADAPTERS = "it serves no adapters; name a model in `model`"
_NO_SEARCH = "it has no web search; give the model a function that searches"
_IN_MESSAGES = "pictures are parts of messages"
_LOADED = Harmless("How a model is loaded is an option of the served model.")
_SCHEDULED = Harmless("The engine schedules requests itself.")
_CACHED = Harmless("The prefix cache finds equal starts of prompts itself.")
_UNUSED_DETAIL = Harmless("A detail of a sampler that is refused unless it is off.")
_ROUTED = Harmless("This server is the only provider of its models.")
_EXTRA = Harmless("The answer has no such member.")

_ROWS: Final[Mapping[str, Mapping[str, Fate]]] = {
    "llama.cpp": {
        "n_predict": _LIMIT,
        "repeat_penalty": same_as("repetition_penalty"),
        "json_schema": same_as("guided_json"),
        "grammar": same_as("guided_grammar"),
        "reasoning_budget": _BUDGET,
        "thinking_budget_tokens": _BUDGET,
        "reasoning_format": REASONING_FORMAT,
        "repeat_last_n": Refused(_WHOLE, harmless=(-1,)),
        "penalize_nl": Refused(_PENALTY, harmless=(False,)),
        "typical_p": Refused(_SAMPLER, harmless=(1,)),
        "tfs_z": Refused(_SAMPLER, harmless=(1,)),
        "top_n_sigma": Refused(_SAMPLER, harmless=(-1, 0)),
        "mirostat": Refused(_SAMPLER, harmless=(0,)),
        "mirostat_tau": _UNUSED_DETAIL,
        "mirostat_eta": _UNUSED_DETAIL,
        "dynatemp_range": Refused(_SAMPLER, harmless=(0,)),
        "dynatemp_exponent": _UNUSED_DETAIL,
        "xtc_probability": Refused(_SAMPLER, harmless=(0,)),
        "xtc_threshold": _UNUSED_DETAIL,
        "dry_multiplier": Refused(_PENALTY, harmless=(0,)),
        "dry_base": _UNUSED_DETAIL,
        "dry_allowed_length": _UNUSED_DETAIL,
        "dry_penalty_last_n": _UNUSED_DETAIL,
        "dry_sequence_breakers": _UNUSED_DETAIL,
        "samplers": Refused(_ORDER, harmless=([],)),
        "min_keep": Refused(_SAMPLER, harmless=(0,)),
        "n_probs": Refused("use `logprobs`, and in chats `top_logprobs`", harmless=(0,)),
        "post_sampling_probs": Refused("use `top_p_normalized_logprobs`", harmless=(False,)),
        "n_indent": Refused("use `guided_regex` for the form of an answer", harmless=(0,)),
        "n_keep": Harmless("A prompt that is too long is refused, and never cut."),
        "n_discard": Harmless("A prompt that is too long is refused, and never cut."),
        "t_max_predict_ms": Refused("use `max_tokens`", harmless=(0, -1)),
        "lora": Refused(_NO_ADAPTERS, harmless=([],)),
        "image_data": Refused(_IN_MESSAGES, harmless=([],)),
        "return_tokens": Refused("use `return_token_ids`", harmless=(False,)),
        "response_fields": Refused("it returns whole answers", harmless=([],)),
        "cache_prompt": _CACHED,
        "id_slot": _SCHEDULED,
        "slot_id": _SCHEDULED,
        "timings_per_token": _EXTRA,
        "return_progress": _EXTRA,
    },
    "Ollama": {
        "num_predict": _LIMIT,
        "think": THINKS,
        "format": FORMAT,
        "num_ctx": Refused(_CONTEXT),
        "num_keep": Harmless("A prompt that is too long is refused, and never cut."),
        "penalize_newline": Refused(_PENALTY, harmless=(False,)),
        "raw": Refused("use completions, whose prompts have no template", harmless=(False,)),
        "template": Refused("use `chat_template`", harmless=("",)),
        "images": Refused(_IN_MESSAGES, harmless=([],)),
        "context": Refused("it keeps no conversations; send all messages", harmless=([],)),
        "keep_alive": _LOADED,
        **dict.fromkeys(
            ("num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "low_vram", "f16_kv"),
            _LOADED,
        ),
        **dict.fromkeys(("use_mmap", "use_mlock", "vocab_only"), _LOADED),
    },
    "LM Studio": {"ttl": _LOADED, "draft_model": _LOADED, "context_length": Refused(_CONTEXT)},
    "text-generation-inference": {
        "max_new_tokens": _LIMIT,
        "stop_sequences": same_as("stop"),
        "truncate": same_as("truncate_prompt_tokens"),
        "return_full_text": same_as("echo"),
        "do_sample": SAMPLED,
        "parameters": Refused(_PARENT, harmless=({},)),
        "inputs": Refused("use `messages`, `prompt` or `input`", harmless=("",)),
        "watermark": Refused(_NO_MARK, harmless=(False,)),
        "top_n_tokens": Refused("use `logprobs`", harmless=(0,)),
        "details": Refused("use `logprobs` and `return_token_ids`", harmless=(False,)),
        "decoder_input_details": Refused("use `prompt_logprobs`", harmless=(False,)),
        "adapter_id": Refused(_NO_ADAPTERS, harmless=("",)),
        "tool_prompt": Refused("the model's template presents tools", harmless=("",)),
        "guideline": Refused("send a system message", harmless=("",)),
    },
    "SGLang": {
        "regex": same_as("guided_regex"),
        "ebnf": same_as("guided_grammar"),
        "min_new_tokens": same_as("min_tokens"),
        "input_ids": same_as("prompt_token_ids"),
        "sampling_params": Refused(_PARENT, harmless=({},)),
        "stop_regex": Refused("use `stop`", harmless=("", [])),
        "no_stop_trim": Refused("use `include_stop_str_in_output`", harmless=(False,)),
        "separate_reasoning": Refused("reasoning is always separate", harmless=(True,)),
        "stream_reasoning": Refused("reasoning is always streamed", harmless=(True,)),
        "return_hidden_states": Refused("use `logprobs`", harmless=(False,)),
        "custom_logit_processor": Refused("use `logits_processors_args`", harmless=("",)),
        "lora_path": Refused(_NO_ADAPTERS, harmless=("", [])),
        "session_params": Refused("it keeps no sessions", harmless=({},)),
        "rid": _EXTRA,
    },
    "vLLM": {
        "guided_whitespace_pattern": Refused(
            "the answer has at most one space after a comma or colon", harmless=("",)
        ),
        "guided_decoding_backend": Harmless("There is one compiler of grammars."),
    },
    "Mistral": {
        "random_seed": same_as("seed"),
        "safe_prompt": Refused("send a system message", harmless=(False,)),
        "prompt_mode": Refused("use `reasoning_effort`"),
    },
    "Anthropic": {
        "max_tokens_to_sample": _LIMIT,
        "thinking": THINKING,
        "system": Refused("send a message with the role system", harmless=("", [])),
        "mcp_servers": Refused("it calls no tools; give the model functions", harmless=([],)),
        "output_config": Refused("use `response_format`", harmless=({},)),
        "anthropic_version": Harmless("This server has one version of its API."),
        "anthropic_beta": Harmless("This server has one version of its API."),
        "betas": Harmless("This server has one version of its API."),
        "cache_control": _CACHED,
        "compaction": Refused("it sends the model all messages of a request; shorten them first"),
        "thread": Refused("it stores no conversations; send all messages"),
        "billing_policy": Harmless("Usage counts for the project of the key."),
        "fallback_credit_token": _ROUTED,
        "diagnostics": _EXTRA,
        "inference_geo": _ROUTED,
        "speed": _ROUTED,
        "user_profile_id": Harmless("Use `metadata`."),
        "workspace_id": _ROUTED,
    },
    "Qwen": {
        "enable_thinking": THINKS,
        "thinking_budget": _BUDGET,
        "enable_search": Refused(_NO_SEARCH, harmless=(False,)),
        "search_options": Refused(_NO_SEARCH, harmless=({},)),
    },
    "OpenRouter": {
        "reasoning": REASONING,
        "top_a": Refused(_SAMPLER, harmless=(0,)),
        "models": Refused("a request has one model; use `model`", harmless=([],)),
        "transforms": Refused("use `truncate_prompt_tokens`", harmless=([],)),
        "plugins": Refused("it has no plugins", harmless=([],)),
        "preset": Refused("it has no presets", harmless=("",)),
        "provider": _ROUTED,
        "route": _ROUTED,
        "usage": Harmless("Answers have their usage; for streams use `stream_options`."),
    },
    "LiteLLM": {
        "fallbacks": Refused("a request has one model", harmless=([], "default")),
        "guardrails": Refused("it has no guardrails", harmless=([],)),
        "mock_response": Refused("it sends only answers of models", harmless=("",)),
        "extra_body": Refused(
            "OpenAI's Python client merges it into the body; send its members as fields of the "
            "body itself", harmless=({},)
        ),
        "drop_params": Harmless("Nothing is dropped silently."),
        "num_retries": Harmless("Clients retry."),
        "cache": _CACHED,
        "caching": _CACHED,
        "tags": Harmless("Use `metadata`."),
    },
    "Groq": {
        "search_settings": Refused(_NO_SEARCH, harmless=({},)),
        "compound_custom": Refused("it has no compound models", harmless=({},)),
        "citation_options": Refused("answers have no citations", harmless=("disabled",)),
    },
    "text-generation-webui": {
        "ban_eos_token": same_as("ignore_eos"),
        "truncation_length": Refused(_CONTEXT),
        "max_context_length": Refused(_CONTEXT),
        "repetition_penalty_range": Refused(_WHOLE, harmless=(0, -1)),
        "encoder_repetition_penalty": Refused(_PENALTY, harmless=(1,)),
        "dynamic_temperature": Refused(_SAMPLER, harmless=(False,)),
        "dynatemp_low": _UNUSED_DETAIL,
        "dynatemp_high": _UNUSED_DETAIL,
        "smoothing_factor": Refused(_SAMPLER, harmless=(0,)),
        "smoothing_curve": _UNUSED_DETAIL,
        "epsilon_cutoff": Refused(_SAMPLER, harmless=(0,)),
        "eta_cutoff": Refused(_SAMPLER, harmless=(0,)),
        "tfs": Refused(_SAMPLER, harmless=(1,)),
        "penalty_alpha": Refused(_PENALTY, harmless=(0,)),
        "guidance_scale": Refused("the engine has no guidance", harmless=(1,)),
        "negative_prompt": Refused("the engine has no guidance", harmless=("",)),
        "mirostat_mode": Refused(_SAMPLER, harmless=(0,)),
        "sampler_priority": Refused(_ORDER, harmless=([],)),
        "temperature_last": Refused(_ORDER, harmless=(False,)),
        "custom_token_bans": Refused("use `bad_words_token_ids`", harmless=("",)),
        "add_bos_token": Refused("use `add_special_tokens`", harmless=(True,)),
        "auto_max_new_tokens": Refused("use `max_tokens` with -1", harmless=(False,)),
        "mode": Refused("use chat/completions or completions", harmless=("instruct",)),
        "character": Refused("send a system message", harmless=("",)),
        "instruction_template": Refused("use `chat_template`", harmless=("",)),
    },
    "OpenAI, at another endpoint": {
        "reasoning_effort": EFFORT,
        "messages": Refused("this endpoint reads another field", harmless=([],)),
        "prompt": Refused("this endpoint reads another field", harmless=("", [])),
        "input": Refused("this endpoint reads another field", harmless=("", [])),
        "instructions": Refused("send a system message", harmless=("",)),
        "text": Refused("use `response_format`", harmless=({},)),
        "tools": Refused("use chat/completions or responses", harmless=([],)),
        "tool_choice": Refused("use chat/completions or responses", harmless=("none", "auto")),
        "functions": Refused("use `tools`, of chat/completions or responses", harmless=([],)),
        "function_call": Refused("use `tool_choice`", harmless=("none", "auto")),
        "suffix": Refused("use completions", harmless=("",)),
        "chat_template": Refused("this endpoint uses no template", harmless=("",)),
        "chat_template_kwargs": Refused("this endpoint uses no template", harmless=({},)),
        "documents": Refused("this endpoint uses no template", harmless=([],)),
        "continue_final_message": Refused("this endpoint uses no template", harmless=(False,)),
        "truncation": Refused("use `truncate_prompt_tokens`", harmless=("disabled",)),
        "top_logprobs": Refused("use `logprobs`", harmless=(0,)),
        "conversation": Refused("it stores no conversations; send all messages"),
        "previous_response_id": Refused("it stores no responses; send all messages"),
        "background": Refused("it stores no responses", harmless=(False,)),
        "include": Refused("use `logprobs`", harmless=([],)),
        "parallel_tool_calls": Harmless("This endpoint has no tools."),
        "verbosity": Harmless("The served models have no such setting."),
        "prediction": Harmless("A hint for speed."),
    },
}  # fmt: skip

FOREIGN: Final = tuple(
    Foreign(name, servers, fate) for servers, rows in _ROWS.items() for name, fate in rows.items()
)

FOREIGN_BY_NAME: Final[Mapping[str, Foreign]] = {each.name: each for each in FOREIGN}

# The members of Ollama's `options` that are fields of the body, under the same names. Its other
# members are rows of the table, or unknown.
OPTIONS: Final = "options"
OPTION_FIELDS: Final = frozenset(
    {
        "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty",
        "frequency_penalty",
    }
)  # fmt: skip
