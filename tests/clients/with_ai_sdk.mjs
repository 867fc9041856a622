// Five turns with a tool and reasoning, by the default provider of the AI SDK: of a model that
// reasons by itself with nothing set, and of tiny-chat, which does so in the turns that ask for it.
import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const tools = {
  get_weather: tool({
    description: "Get the weather",
    inputSchema: z.object({ city: z.string() }),
    execute: async () => '{"temperature": 21, "condition": "sunny"}',
  }),
};
const [model = "tiny-chat"] = process.argv.slice(2);
const asksForIt = { providerOptions: { openai: { forceReasoning: true, reasoningEffort: "low" } } };
const reasons = model === "tiny-chat" ? asksForIt : {};
const messages = [];
const send = globalThis.fetch;
let sent = "";
globalThis.fetch = (url, options) => {
  sent += options.body;
  return send(url, options);
};

async function turn(content, options = {}, isStreamed = false) {
  messages.push({ role: "user", content });
  const asked = { model: openai(model), messages, tools, stopWhen: stepCountIs(4), ...options };
  const result = isStreamed ? streamText(asked) : await generateText(asked);
  const [text, steps, reasoning, response] = await Promise.all([
    result.text, result.steps, result.reasoningText, result.response,
  ]);
  messages.push(...response.messages);
  console.log(
    JSON.stringify({
      text,
      num_steps: steps.length,
      has_reasoned: Boolean(reasoning),
      num_references: sent.split("item_reference").length - 1,
    }),
  );
  sent = "";
}

await turn("What is the capital of France?");
await turn("What is the weather in Paris?", {}, true);
await turn("What is the capital of France?", reasons);
await turn("What is the weather in Paris?", reasons);
await turn("What is the capital of France?", {}, true);
