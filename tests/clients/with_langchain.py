# mypy: ignore-errors
"""Turns that send only what is new, by `use_previous_response_id`."""

import json
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(city: str) -> str:
    """Get the weather"""
    return '{"temperature": 21, "condition": "sunny"}'


model = ChatOpenAI(model="tiny-chat", use_responses_api=True, use_previous_response_id=True)
agent = create_agent(model, [get_weather])
messages, turns = [], []
for question in (
    "What is the capital of France?",
    "What is the weather in Paris?",
    "What is the capital of France?",
):
    messages.append({"role": "user", "content": question})
    messages = agent.invoke({"messages": messages})["messages"]
    turns.append(messages[-1])
sys.stdout.write(
    json.dumps(
        {
            "texts": [each.text for each in turns],
            "num_tokens": [each.usage_metadata["input_tokens"] for each in (turns[0], turns[-1])],
        }
    )
)
