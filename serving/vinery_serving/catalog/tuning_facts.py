"""What pages and commands show of a search for better engine options."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def trial_rows(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what each trial gave, in the order in which they ran. `result` is that of the job."""
    for trial in result["trials"]:
        gain = trial["gain"]
        yield {
            "trial": trial["what"],
            "gain": trial["error"] if gain is None else f"{gain:.2f}",
            "by_streams": ", ".join(f"{num}: {each:.2f}" for num, each in trial["gains"].items()),
            "same_answers": "-" if gain is None else f"{trial['same_answers']:.0%}",
            "kept": trial["is_kept"],
        }


def is_better(result: Mapping[str, Any]) -> bool:
    """Whether the search has found options that are better than those it began with."""
    return bool(result["best"] != result["present"])


def summary(result: Mapping[str, Any]) -> str:
    """Return one line about the best options, and about time that was too short."""
    best, genai = result["best_gain"], result["genai_gain"]
    text = "No trial was clearly faster than the present options."
    if is_better(result):
        options = json.dumps(result["best"])
        text = f"The best options are {best:.2f} times as fast as the present ones: {options}."
    if genai:
        text += f" They are {best / genai:.2f} times as fast as OpenVINO GenAI's defaults."
    if not result["is_complete"]:
        text += " The time ended before all settings were tried."
    return text
