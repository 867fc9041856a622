# mypy: ignore-errors
"""Turns that send only what is new, by `openai_previous_response_id`."""

import json
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings

settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
agent = Agent(OpenAIResponsesModel("tiny-chat"), model_settings=settings)


@agent.tool_plain
def get_weather(city: str) -> str:
    """Get the weather"""
    return '{"temperature": 21, "condition": "sunny"}'


first = agent.run_sync("What is the capital of France?")
second = agent.run_sync("What is the weather in Paris?", message_history=first.all_messages())
third = agent.run_sync("What is the capital of France?", message_history=second.all_messages())
sys.stdout.write(
    json.dumps(
        {
            "texts": [each.output for each in (first, second, third)],
            "num_tokens": [each.usage.input_tokens for each in (first, third)],
        }
    )
)
