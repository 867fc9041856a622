// Every method of responses, conversations and stored chats of OpenAI's client for JavaScript.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const model = "tiny-chat";
const input = "What is the capital of France?";

async function all(page) {
  const found = [];
  for await (const each of page) found.push(each);
  return found;
}

async function statusOf(promise) {
  return promise.then(() => 200, (error) => error.status);
}

const first = await client.responses.create({ model, input });
const stream = client.responses.stream({ model, input, previous_response_id: first.id });
const second = await stream.finalResponse();
const items = await all(await client.responses.inputItems.list(second.id, { limit: 1 }));
const counted = await client.responses.inputTokens.count({
  model, input, previous_response_id: first.id,
});
const found = await client.responses.retrieve(second.id);
await client.responses.delete(first.id);
const compacted = await client.responses.compact({ model, previous_response_id: second.id });

const queued = await client.responses.create({ model, input, background: true });
const followed = await client.responses.stream({ response_id: queued.id }).finalResponse();
const ended = await client.responses.cancel(queued.id);
const [next] = await all(
  await client.responses.retrieve(queued.id, { stream: true, starting_after: 3 }),
);

const made = await client.conversations.create({ metadata: { a: "b" } });
await client.conversations.items.create(made.id, {
  items: [1, 2, 3].map((n) => ({ type: "message", role: "user", content: `${n}` })),
});
const talked = await client.responses.create({ model, input, conversation: made.id });
const listed = await all(
  await client.conversations.items.list(made.id, { order: "asc", limit: 2 }),
);
const { id } = listed[0];
const one = await client.conversations.items.retrieve(id, { conversation_id: made.id });
const left = await client.conversations.items.delete(id, { conversation_id: made.id });
const changed = await client.conversations.update(made.id, { metadata: null });
const same = await client.conversations.retrieve(made.id);
const gone = await client.conversations.delete(made.id);

const chat = await client.chat.completions.create({
  model, messages: [{ role: "user", content: input }], store: true, metadata: { js: "yes" },
});
const chats = await all(await client.chat.completions.list({ metadata: { js: "yes" } }));
const messages = await all(await client.chat.completions.messages.list(chat.id));
const updated = await client.chat.completions.update(chat.id, { metadata: { js: "no" } });
const again = await client.chat.completions.retrieve(chat.id);
const deleted = await client.chat.completions.delete(chat.id);

console.log(
  JSON.stringify({
    texts: [first, second, found, talked].map((each) => each.output_text),
    num_items: items.length,
    compacted: compacted.output.map((each) => each.type),
    background: [queued.status, followed.output_text, ended.status, next.sequence_number],
    is_counted: counted.input_tokens === second.usage.input_tokens,
    first_status: await statusOf(client.responses.retrieve(first.id)),
    listed: listed.map((each) => each.content[0].text),
    is_same_item: one.id === id,
    conversations: [left, changed, same, gone].map((each) => each.id === made.id),
    metadata: [left.metadata, changed.metadata],
    chats: chats.map((each) => each.id === chat.id),
    messages: messages.map((each) => each.content),
    chat_metadata: [updated.metadata, again.metadata],
    deleted: deleted.deleted,
    chat_status: await statusOf(client.chat.completions.retrieve(chat.id)),
  }),
);
