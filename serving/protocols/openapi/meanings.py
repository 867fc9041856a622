"""What each field of a request does, in a few words, and where the two URL trees differ.

Read by whoever describes the API: the OpenAPI document and `docs/parameters.md`. Names of
members of an object follow the object's own, as in `stream_options.include_usage`. Fields
that are refused have their reasons in `serving.protocols.refused`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SAMPLING = {
    "temperature": "0, and what is less than 0.00001, is greedy. Absent: the model's "
    "generation_config.json, else 1.",
    "top_p": "0 keeps only the likeliest token. Absent: the model's own, else 1.",
    "top_k": "0 and -1 keep all tokens. Absent: the model's own, else all on /v1 and 40 on /v3.",
    "min_p": "Drops tokens less likely than this part of the likeliest; 1 keeps only the "
    "likeliest. Absent: the model's own.",
    "seed": "Equal seeds give equal answers. Negative ones are folded into the engine's range; "
    "absent, one is drawn.",
    "frequency_penalty": "By how often a token has been generated. Absent: the model's own.",
    "presence_penalty": "By whether a token has been generated. Absent: the model's own.",
    "repetition_penalty": "1 is none; counts the prompt too. Absent: the model's own.",
    "n": "So many answers, each sampled with a seed of its own and streamed as it is made; "
    "needs no `best_of`.",
    "best_of": "On /v3 the width of a search by beams. On /v1 so many answers are drawn, of "
    "which the `n` best by mean log-probability are returned; not in streams.",
    "use_beam_search": "A search by as many beams as `best_of` says, or else `n`; 64 at most.",
    "length_penalty": "For beams: the exponent of the length by which a score is divided.",
    "early_stopping": "For beams: when a search is over; true, false or `never`.",
    "no_repeat_ngram_size": "For beams: no sequence of so many tokens comes twice.",
}

_STOPPING = {
    "max_tokens": "The most tokens of an answer. Completions without it: 16 on /v1, until the "
    "model ends on /v3. Completions take 0 with `echo` or `prompt_logprobs`.",
    "max_completion_tokens": "The same, and wins over `max_tokens`.",
    "max_output_tokens": "The same, and wins over both.",
    "min_tokens": "Before so many tokens nothing ends an answer but its limit.",
    "stop": "A text or several: at most 4 on /v1, 16 on /v3. Found across the borders of tokens.",
    "include_stop_str_in_output": "Absent: false, but true for streams on /v3. False goes with "
    "streams too.",
    "stop_token_ids": "Tokens that end an answer, beside the model's own.",
    "ignore_eos": "The model's own end tokens end nothing; `stop_token_ids` still do.",
    "repetition_detection": "Ends an answer that goes round in circles.",
    "repetition_detection.max_pattern_size": "The longest circle, in tokens; 0: nothing ends.",
    "repetition_detection.min_pattern_size": "The shortest circle; 1 unless said.",
    "repetition_detection.min_count": "How often it must have been gone round; 2 at least.",
}

_PROMPTS = {
    "messages": "The conversation; on the chat endpoint also a list of token ids, as FastDeploy "
    "takes them.",
    "prompt": "A text, several texts, token ids, or several lists of token ids.",
    "prompt_token_ids": "Token ids that go before the prompt of other fields. "
    "Completions take several lists of them.",
    "suffix": "What follows the answer, for models with tokens to fill in the middle; for others "
    "it is refused.",
    "echo": "The answer begins with its prompt. In chats: with the last message, if that is the "
    "assistant's.",
    "add_special_tokens": "Whether tokens such as BOS go around the prompt. Absent: around raw "
    "prompts only, since templates write their own.",
    "truncate_prompt_tokens": "Keeps so many tokens of the prompt; -1: as many as fit beside the "
    "answer.",
    "truncation_side": "Which side of a truncated prompt is lost; `left` unless said.",
    "chat_template": "A template in place of the model's, for models whose administrator trusts "
    "requests with it (`trust_request_chat_template`); sandboxed and limited in time and memory.",
    "chat_template_kwargs": "Variables for the template. Those that the server sets are refused "
    "by name.",
    "disable_chat_template": "The texts of the messages are the prompt, and nothing else is.",
    "add_generation_prompt": "Whether the prompt ends with the opening of an answer; true unless "
    "said.",
    "continue_final_message": "The answer goes on with the last message.",
    "documents": "Documents for the template; refused where it takes none.",
    "input": "A text, or items: messages, thoughts, calls of tools and their outputs.",
    "instructions": "A system message before all others.",
    "truncation": "`auto` leaves out the oldest turns until the rest fits; `disabled` refuses "
    "what is too long.",
    "cache_salt": "Prompts share cached beginnings only with prompts of the same salt.",
    "return_prompt_text": "Tells the text of the prompt as the model was given it.",
}

_THOUGHTS = {
    "reasoning_effort": "How much to think, told to the template in its own words, or as a "
    "budget where it has none.",
    "reasoning": "How to think, and how to tell of it.",
    "reasoning.effort": "How much to think, told to the template in its own words, or as a "
    "budget where it has none.",
    "reasoning.summary": "Thoughts are told in full, whichever summary is asked for.",
    "reasoning.generate_summary": "The deprecated name of `summary`.",
    "reasoning.context": "Which replayed thoughts the template is given.",
    "reasoning.mode": "There is one: `pro` is refused, as a model has one way to think here.",
    "thinking_token_budget": "Ends a thought after so many tokens; -1: no budget. For models "
    "that end their thoughts with one token.",
    "reasoning_max_tokens": "The same, in FastDeploy's words; `thinking_token_budget` wins.",
    "include_reasoning": "False leaves the thoughts out of the answer; they are counted all the "
    "same.",
}

_FORMS = {
    "response_format": "Text, a JSON object, a JSON schema or an XGrammar tag. What cannot be "
    "compiled is refused. On /v1 Responses take `text.format` instead.",
    "response_format.type": "`text`, `json_object`, `json_schema`, or the type of a tag.",
    "response_format.json_schema": "The schema and its name.",
    "response_format.json_schema.name": "Repeated by Responses.",
    "response_format.json_schema.description": "Repeated by Responses.",
    "response_format.json_schema.schema": "Key order is kept: the answer's keys follow it.",
    "response_format.json_schema.strict": "True refuses what no grammar can hold to; otherwise "
    "that part of the schema is left out.",
    "text": "The form of the answer.",
    "text.format": "What `response_format` is for chats, without the inner object.",
    "text.format.type": "`text`, `json_object`, `json_schema`, or the type of a tag.",
    "text.format.name": "Repeated.",
    "text.format.description": "Repeated.",
    "text.format.schema": "Key order is kept: the answer's keys follow it.",
    "text.format.strict": "True refuses what no grammar can hold to; otherwise that part of the "
    "schema is left out.",
    "text.verbosity": "Repeated; models served here know no such setting.",
    "structured_outputs": "One constraint on the answer, in vLLM's words.",
    "structured_outputs.json": "A JSON schema: an object, or its text.",
    "structured_outputs.regex": "A regular expression for the whole answer.",
    "structured_outputs.choice": "The answer is one of these texts.",
    "structured_outputs.grammar": "A grammar in EBNF.",
    "structured_outputs.structural_tag": "An XGrammar tag: an object, or its text.",
    "structured_outputs.json_object": "Any JSON object.",
    "structured_outputs.disable_any_whitespace": "JSON without blanks.",
    "structured_outputs.disable_additional_properties": "Only false: say it in the schema.",
    "structured_outputs.whitespace_pattern": "Refused: there is at most one blank after a comma "
    "or colon.",
    "structured_outputs.disable_fallback": "There is one way to compile grammars, so there is "
    "nothing to fall back on.",
    "structural_tag": "An XGrammar tag: an object, or its text.",
    "guided_json": "A JSON schema: an object, or its text.",
    "guided_regex": "A regular expression for the whole answer.",
    "guided_choice": "The answer is one of these texts.",
    "guided_grammar": "A grammar in EBNF.",
    "guided_json_object": "Any JSON object.",
}

_TOOLS = {
    "tools": "Functions and custom tools, in the nested form of chats or the flat form of "
    "Responses. The input of a custom tool is held to its `format`, a regular expression or a "
    "Lark grammar, whether or not its call was demanded. In Responses a `namespace` may hold "
    "some of them; its description is told with its first tool. Tools that OpenAI hosts are "
    "left out by Responses and refused in chats.",
    "tool_choice": "`none`, `auto`, `required`, a function or custom tool, or `allowed_tools`. "
    "Calls that are demanded are enforced by a grammar in every output format.",
    "parallel_tool_calls": "False allows one call.",
    "functions": "The deprecated form of `tools`; answered with `function_call`.",
    "function_call": "The deprecated form of `tool_choice`.",
    "max_tool_calls": "A limit for hosted tools, of which there are none; repeated.",
}

_TOKENS = {
    "logprobs": "In chats and Responses a switch; in completions how many others are told with "
    "each token (0 to 20). Streamed too. Of the model's own distribution.",
    "top_logprobs": "How many others are told with each token, 0 to 20.",
    "include": "`message.output_text.logprobs` and `reasoning.encrypted_content` add to the "
    "answer; what belongs to hosted tools adds nothing.",
    "prompt_logprobs": "The same for the tokens of the prompt; not in streams.",
    "logprob_token_ids": "Tokens whose log-probabilities are always told.",
    "temp_scaled_logprobs": "Log-probabilities after division by the temperature.",
    "top_p_normalized_logprobs": "Log-probabilities within the nucleus of `top_p`.",
    "return_token_ids": "Tells the ids of all tokens of prompt and answer, and their text.",
    "return_tokens_as_token_ids": "Tokens of log-probabilities are written `token_id:5`.",
    "logit_bias": "Added to the logits of these token ids, -100 to 100.",
    "bad_words": "Words that are not written, at the beginning of a text or after a blank.",
    "bad_words_token_ids": "Token ids, or sequences of them, that are not written.",
    "allowed_token_ids": "Only these tokens are written.",
    "logits_processors_args": "Arguments for the processors that an administrator has "
    "registered; refused where there are none.",
    "vllm_xargs": "The same, in vLLM's words; not both.",
    "skip_special_tokens": "False shows special tokens in the text, and then nothing in it is "
    "read as a thought or a call.",
    "spaces_between_special_tokens": "Only tokenizers that decode word by word put any; here "
    "there are none to leave out.",
}

_SPECULATION = {
    "num_assistant_tokens": "How many tokens a draft model or a prompt lookup proposes at once, "
    "for models served with one. Absent: generation_config.json, else 5.",
    "assistant_confidence_threshold": "A draft model stops proposing below this confidence; not "
    "with `num_assistant_tokens`.",
    "max_ngram_size": "The longest sequence that a prompt lookup searches for. Absent: 3.",
}

_DELIVERY = {
    "model": "A served model. May be absent, or `default`, where one model is loaded.",
    "stream": "Server-sent events, ended by `data: [DONE]`.",
    "stream_options": "How to stream; only with `stream`.",
    "stream_options.include_usage": "A last chunk with the totals, and `usage` null before it. "
    "Responses always end with theirs.",
    "stream_options.include_obfuscation": "Pads deltas to equal sizes. Absent: not.",
    "stream_options.continuous_usage_stats": "Running counts in every chunk, with `include_usage`.",
    "stream_interval": "Chunks have so many tokens at least, but for the first and the last.",
    "priority": "Of requests that wait, lower numbers go first; from 0, so that none can jump "
    "the queue.",
    "request_id": "What the answer is known by: its id is made of it.",
}

_LABELS = {
    "service_tier": "There is one tier, so the answer says `default`.",
    "user": "Repeated by Responses; changes nothing.",
    "safety_identifier": "Repeated by Responses; changes nothing.",
    "metadata": "Repeated; at most 16 pairs.",
    "store": "No answers are stored, and answers say so.",
    "prompt_cache_key": "Repeated by Responses. Beginnings of prompts are cached by what they "
    "hold, so no key is needed.",
    "session_id": "A hint for caches, which need none: beginnings of prompts are cached by what "
    "they hold.",
    "prompt_cache_retention": "Repeated by Responses. The engine keeps prefixes for as long as "
    "it has room.",
    "prompt_cache_options": "Repeated by Responses. The engine keeps prefixes for as long as it "
    "has room.",
    "prompt_cache_options.mode": "Repeated.",
    "prompt_cache_options.ttl": "Repeated.",
    "prompt_cache_options.prewarm": "Only false: to fill the cache, ask for an answer of one "
    "token.",
    "prompt_cache_options.comparison_response_id": "Only null: no responses are stored.",
    "prediction": "A hint for speed, which changes nothing.",
    "prediction.type": "`content`.",
    "prediction.content": "A text, or text parts.",
    "verbosity": "A hint; models served here know no such setting.",
}

_TOKENIZERS = {
    "return_token_strs": "Tells the names of the tokens in the vocabulary.",
    "text": "A text or several, as OpenVINO Model Server asks.",
    "max_length": "Keeps so many tokens, the first ones.",
    "pad_to_max_length": "Pads to `max_length`.",
    "padding_side": "Where padding goes; `right` unless said.",
    "tokens": "Token ids.",
}

MEANINGS: Mapping[str, str] = MappingProxyType(
    _SAMPLING
    | _STOPPING
    | _PROMPTS
    | _THOUGHTS
    | _FORMS
    | _TOOLS
    | _TOKENS
    | _SPECULATION
    | _DELIVERY
    | _LABELS
)
# Of `/tokenize` and `/detokenize`: a name may mean something else there.
TOKENIZER_MEANINGS: Mapping[str, str] = MappingProxyType({**MEANINGS, **_TOKENIZERS})

# Fields that change nothing about what is generated, and are accepted all the same.
ECHOED = frozenset(_LABELS) | {"text.verbosity", "max_tool_calls", "spaces_between_special_tokens"}
