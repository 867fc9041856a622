"""What `return_token_ids` adds to an answer: tokens by their ids, and by their text.

vLLM and FastDeploy have the same parameter and other names for what it tells. Clients of
either find theirs: `token_ids` is vLLM's, `prompt_token_ids` stands in places of both, and
the rest is FastDeploy's, to whom `prompt_tokens` and `completion_tokens` are texts.
"""

from __future__ import annotations

from collections.abc import Sequence

Members = dict[str, object]


def of_prompt(token_ids: Sequence[int], text: str) -> Members:
    """FastDeploy's: beside the role in chats, in each choice of completions."""
    return {"prompt_token_ids": list(token_ids), "prompt_tokens": text}


def of_answer(token_ids: Sequence[int], text: str) -> Members:
    """FastDeploy's, in the same places. `text` is that of all these tokens, with the special
    ones, and before thoughts and calls are read out of it."""
    return {"completion_token_ids": list(token_ids), "completion_tokens": text}
