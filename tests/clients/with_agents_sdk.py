# mypy: ignore-errors
"""A session of conversations with pop and clear, the loop of tools with
`auto_previous_response_id`, and a session that is compacted after each turn."""

import asyncio
import json
import sys

from agents import (
    Agent,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)

CAPITAL, WEATHER = "What is the capital of France?", "What is the weather in Paris?"


@function_tool
def get_weather(city: str) -> str:
    """Get the weather"""
    return '{"temperature": 21, "condition": "sunny"}'


async def main() -> None:
    set_tracing_disabled(True)
    agent = Agent(name="Assistant", model="tiny-chat", tools=[get_weather])
    session = OpenAIConversationsSession()
    texts, numbers = [], []
    for question in (CAPITAL, WEATHER, CAPITAL):
        texts.append((await Runner.run(agent, question, session=session)).final_output)
        numbers.append(len(await session.get_items()))
    popped = await session.pop_item()
    numbers.append(len(await session.get_items()))
    await session.clear_session()
    numbers.append(len(await session.get_items()))
    await session.clear_session()

    streamed = Runner.run_streamed(agent, WEATHER, auto_previous_response_id=True)
    async for _ in streamed.stream_events():
        """The loop of tools runs meanwhile."""
    last = streamed.last_response_id
    after = await Runner.run(agent, CAPITAL, previous_response_id=last)

    compacted = OpenAIResponsesCompactionSession(
        "s", SQLiteSession("s"), model="gpt-tiny", should_trigger_compaction=lambda _: True
    )
    kinds = []
    for question in (WEATHER, CAPITAL):
        texts.append((await Runner.run(agent, question, session=compacted)).final_output)
        kinds.append([each["type"] for each in await compacted.get_items()])
    sys.stdout.write(
        json.dumps(
            {
                "texts": [*texts, streamed.final_output, after.final_output],
                "kinds": kinds,
                "numbers": numbers,
                "popped": popped["content"][0]["text"],
                "num_tokens": [
                    each.context_wrapper.usage.input_tokens for each in (streamed, after)
                ],
            }
        )
    )


asyncio.run(main())
