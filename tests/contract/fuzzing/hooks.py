"""Facts that the OpenAPI document lacks: the limits of one small model, and fields that exclude
each other. Valid bodies are adapted, so that most reach the engine; wrong bodies stay unchanged.

Schemathesis loads this file. The statuses are counted and written for the test.
"""

import atexit
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import schemathesis
from schemathesis.generation.meta import TestPhase

MODEL = "tiny-chat"
VOCABULARY = 3072
POOLING_MODELS = {"embeddings": "tiny-embed", "rerank": "tiny-rerank", "score": "tiny-rerank"}
POOLING_VOCABULARY = 2048
DIMENSIONS = 96
LARGEST_BODY = 50_000  # values
LONG_ARRAY = 1_000
LARGEST = {"n": 2, "best_of": 2, "min_tokens": 2, "top_logprobs": 2, "prompt_logprobs": 2}
# Fields that this model and its template do not use, or that clients may not send.
UNFIT = (
    "chat_template", "documents", "suffix", "logits_processors_args", "vllm_xargs",
    "max_completion_tokens", "max_output_tokens", "functions", "function_call",
    "num_assistant_tokens", "assistant_confidence_threshold", "max_ngram_size",
    "previous_response_id", "conversation",  # nothing is stored under a made-up id
)  # fmt: skip
# An answer has one format, and random values are not valid formats.
FORMS = (
    "response_format", "structured_outputs", "structural_tag", "guided_json", "guided_regex",
    "guided_grammar", "guided_json_object", "guided_choice", "output_config", "output_format",
)  # fmt: skip
# These fields need another field.
BEAMS = ("use_beam_search", "length_penalty", "early_stopping", "no_repeat_ngram_size", "best_of")
LOGPROBS = (
    "top_logprobs", "logprob_token_ids", "temp_scaled_logprobs", "top_p_normalized_logprobs",
)  # fmt: skip
IDS = (
    "messages", "prompt", "prompt_token_ids", "tokens", "stop_token_ids", "allowed_token_ids",
    "bad_words_token_ids", "logprob_token_ids",
)  # fmt: skip
MEDIA_PARTS = (
    "image_url", "input_image", "video_url", "input_video", "file", "input_file", "image",
    "document",
)  # fmt: skip

ONE_OF = int(os.environ.get("VINERY_TEST_ONE_OF", "1"))

tally: Counter[tuple[str, str, int]] = Counter()
sent: set[tuple[str, ...]] = set()


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Drop a body of many megabytes, such as an array at its bound with entries at their bounds.
    Drop a bound that equals an earlier bound after `fit`: many valid bodies differ only in fields
    that the model does not use. Of a sample, keep one body in `ONE_OF`, by the checksum."""
    is_bound = bool(case.meta) and case.meta.phase.name is TestPhase.COVERAGE
    if is_bound and ONE_OF > 1 and crc32(repr(case.body).encode()) % ONE_OF:
        return False
    if is_huge(case.body) or has_number_in_text(case):
        return False
    case.body = with_short_entries(case.body)
    if not (is_valid(case) and is_bound):
        return True
    fit(case.body, path=case.path)
    request = (case.method, case.path, repr(case.query), repr(case.headers), json.dumps(case.body))
    is_new = request not in sent
    sent.add(request)
    return is_new


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Adapt a valid body to the model."""
    if is_valid(case):
        fit(case.body, path=case.path)


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    if case.meta:
        mode = case.meta.generation.mode.value
        tally[case.path, mode, response.status_code] += 1


@atexit.register
def write_tally() -> None:
    """Write the counts for the test that started this process."""
    rows = [[*key, count] for key, count in sorted(tally.items())]
    Path(os.environ["VINERY_TEST_TALLY"]).write_text(json.dumps(rows), encoding="utf-8")


def is_huge(body: Any) -> bool:
    """Whether the body has more values than all limits of one field allow."""
    nodes = [body]
    for node in nodes:
        if isinstance(node, dict | list):
            nodes += node.values() if isinstance(node, dict) else node
        if len(nodes) > LARGEST_BODY:
            return True
    return False


def has_number_in_text(case: Any) -> bool:
    """Whether a wrong body has a number as a text, which `/v3` reads as the number."""
    if not (case.path.startswith("/v3") and isinstance(case.body, dict)):
        return False
    return any(isinstance(each, str) and is_number(each) for each in case.body.values())


def is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdigit()


def with_short_entries(value: Any) -> Any:
    """Shorten the texts in an array at its bound, which together are many megabytes. Other cases
    test the bound of each text."""
    if isinstance(value, dict):
        return {key: with_short_entries(each) for key, each in value.items()}
    if isinstance(value, list) and len(value) >= LONG_ARRAY:
        return [each[:9] if isinstance(each, str) else each for each in value]
    return value


def is_valid(case: Any) -> bool:
    """Whether the case has an object as its body that should be accepted."""
    return bool(case.meta) and case.meta.generation.mode.is_positive and isinstance(case.body, dict)


def fit(body: dict[str, Any], *, path: str) -> None:
    """Change a valid body into one that the model can answer with a few tokens."""
    for name, value in body.items():
        body[name] = without_media(whole_numbers(value))
    for name in IDS:
        if name in body:
            body[name] = known_ids(body[name])
    task = path.rpartition("/")[2]
    if task in POOLING_MODELS:
        fit_pooling(body, is_score=task == "score")
        body["model"] = POOLING_MODELS[task]
        return
    drop(body, UNFIT)
    if path.endswith("tokenize"):
        fit_tokenizer(body)
    else:
        counts_logprobs = path.endswith("/completions") and "chat" not in path
        fit_generation(body, counts_logprobs=counts_logprobs, is_message="/messages" in path)
    body["model"] = MODEL


def fit_generation(body: dict[str, Any], *, counts_logprobs: bool, is_message: bool) -> None:
    body["max_tokens"] = 2
    if body.get("prompt") == "":
        body["prompt"] = "Hello"
    for name, limit in LARGEST.items():
        if isinstance(body.get(name), int):
            body[name] = min(body[name], limit)
    form = next((name for name in FORMS if body.get(name) is not None), None)
    drop(body, [name for name in FORMS if name != form])
    if form is not None:
        drop(body, ["ignore_eos", "min_tokens", "text"])
    if body.get("repetition_detection"):
        body["repetition_detection"] = {"max_pattern_size": 4, "min_count": 2}
    drop(body, ["prompt_logprobs", "best_of"] if body.get("stream") else ["stream_options"])
    if not body.get("use_beam_search") or body.get("stream"):
        drop(body, BEAMS)
    if not body.get("logprobs") and not counts_logprobs:
        drop(body, LOGPROBS)
    if body.get("tool_choice") not in ("none", None):
        is_object = isinstance(body["tool_choice"], dict) and is_message
        body["tool_choice"] = {"type": "auto"} if is_object else "auto"
    if is_message:
        fit_message(body)
    if body.get("disable_chat_template") or body.get("continue_final_message"):
        drop(body, ["continue_final_message"])
    if isinstance(body.get("stop"), list):
        body["stop"] = body["stop"][:4]
    if isinstance(body.get("logit_bias"), dict):
        body["logit_bias"] = {
            str(int(key) % VOCABULARY): bias for key, bias in body["logit_bias"].items()
        }


def fit_pooling(body: dict[str, Any], *, is_score: bool) -> None:
    """Cut texts that are too long, and let one field choose the side."""
    drop(body, ["truncate", "prompt_name"])
    body["truncate_prompt_tokens"] = -1
    if "input" in body:
        body["input"] = known_ids(body["input"], POOLING_VOCABULARY)
    if isinstance(body.get("dimensions"), int):
        body["dimensions"] = min(body["dimensions"], DIMENSIONS)
    if is_score:
        drop(body, ["queries", "documents", "data_1", "data_2"])
        body.setdefault("text_1", "Hello")
        body.setdefault("text_2", "Hello")
    elif isinstance(body.get("query"), str):
        body["query"] = body["query"][:9]


def fit_message(body: dict[str, Any]) -> None:
    """Random blocks are seldom in a turn of their role, and not every turn can be continued."""
    body["messages"] = [{"role": "user", "content": "Hello"}]
    drop(body, ["context_management"])
    if isinstance(body.get("tools"), list):
        body["tools"] = body["tools"][:8]
        for tool in body["tools"]:
            drop(tool, ["allowed_callers"])  # random names are seldom `direct`


def fit_tokenizer(body: dict[str, Any]) -> None:
    sources = [name for name in ("prompt", "messages", "text") if body.get(name) is not None]
    drop(body, sources[1:])
    if body.get("pad_to_max_length"):
        body["max_length"] = 8
    if body.get("continue_final_message"):
        drop(body, ["continue_final_message"])


def drop(body: dict[str, Any], names: Any) -> None:
    for name in names:
        body.pop(name, None)


def without_media(value: Any) -> Any:
    """The model takes text only."""
    if isinstance(value, list):
        return [without_media(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") in MEDIA_PARTS:
        return {"type": "text", "text": "a"}
    return {key: without_media(each) for key, each in value.items()}


def whole_numbers(value: Any) -> Any:
    """1.0 is an integer in JSON Schema. The parser reads it only in the fields of the body."""
    if isinstance(value, dict):
        return {key: whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def known_ids(value: Any, vocabulary: int = VOCABULARY) -> Any:
    if isinstance(value, list):
        return [known_ids(each, vocabulary) for each in value]
    is_id = isinstance(value, int) and not isinstance(value, bool)
    return value % vocabulary if is_id else value
