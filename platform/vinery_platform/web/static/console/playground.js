// The playground: a conversation with one or two models over the public API. All of it lives in this
// page and, for a reload, in sessionStorage. The server gives the page a key of the person.
"use strict";

const TASKS = ["chat", "completion", "vision"];
const STATES = { loaded: "ready", asleep: "asleep, wakes when asked", loading: "loading", failed: "failed", "not-loaded": "not loaded" };
const ENDS = {
  stop: "the model ended its answer",
  length: "cut at the limit of tokens",
  tool_calls: "the model called a tool",
  content_filter: "ended by a filter",
};
const OWN_NUMBERS = ["top_k", "min_p", "repetition_penalty"]; // OpenAI's API has no such names
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", ...OWN_NUMBERS];
const FIELDS = ["project", "mode", "model", "compare", "system", ...NUMBERS, "reasoning_effort", "stop", "schema", "tools", "logprobs"];
const LEFT_OUT = "Seed, penalties, reasoning and probabilities are left out: they have other names there, or none.";
const LOOK_AGAIN_MS = 5000;
const STORE = "playground";

const form = document.getElementById("playground");
const part = (id) => document.getElementById(id);
const fields = form.elements;

// {role, text, pictures} of the person, {role, answers} of the models. An answer's calls of tools are
// {id, name, text, result}: the text is that of the arguments, the result is made up by the person.
let turns = [];
let cleared = []; // the turns before they were cleared
let pictures = []; // data URLs of the message that is being written
let wanted = {}; // the chosen models, which the lists may not have yet
let models = [];
let isWaiting = false; // for a model, with a message that is to be sent
let running = null; // an AbortController while answers are awaited
let editing = null; // [turn, answer] whose text is being edited
let secret = "";

// -- Small parts

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function button(text, act) {
  return make("button", { type: "button", className: "plain", textContent: text, onclick: act });
}

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });
const say = (text) => { part("doing").textContent = text; };

// -- The public API, with the person's key

async function sentenceOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered with the status ${response.status}. Reload the page, and try again.`;
  }
}

async function renewSecret() {
  const body = new URLSearchParams({
    project: fields.project.value,
    csrfmiddlewaretoken: fields.csrfmiddlewaretoken.value,
  });
  const response = await fetch(form.dataset.keyAddress, { method: "POST", body, redirect: "error" });
  if (!response.ok) throw new Error(await sentenceOf(response));
  const found = await response.json();
  await pause(found.wait_ms);
  secret = found.secret;
}

// A new secret is known everywhere a moment later, and another window may have renewed the secret.
async function call(path, options = {}) {
  if (!secret) await renewSecret();
  for (let tries = 1; ; tries += 1) {
    const headers = { Authorization: `Bearer ${secret}`, "Content-Type": "application/json" };
    const response = await fetch(`/v1/${path}`, { ...options, headers });
    if (response.status !== 401 || tries === 5) return response;
    await pause(500);
    await renewSecret();
  }
}

function sentenceFor(error) {
  if (!(error instanceof TypeError)) return error.message;
  return "The server does not answer, or your session has ended. Reload the page, and try again.";
}

async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}

// -- Models

function modelOf(name) {
  return models.find((each) => each.id === name);
}

const canAnswer = (model) => ["loaded", "asleep"].includes(model.state);

function optionOf(model) {
  const words = model.state === "loaded" ? "" : ` (${STATES[model.state] ?? model.state})`;
  return make("option", { value: model.id, textContent: model.id + words, disabled: !canAnswer(model) });
}

function showModels() {
  const ready = models.filter(canAnswer).map((each) => each.id);
  for (const name of ["model", "compare"]) {
    fields[name].replaceChildren(...models.map(optionOf));
    fields[name].value = ready.includes(wanted[name]) ? wanted[name] : "";
  }
  fields.compare.prepend(make("option", { value: "", textContent: "no other model" }));
  if (!fields.compare.value) fields.compare.value = "";
  if (!fields.model.value) fields.model.value = ready[0] ?? "";
  part("no-model").hidden = ready.length > 0;
  showAbilities();
}

async function loadModels() {
  try {
    const response = await call("models?all=true");
    if (!response.ok) throw new Error(await sentenceOf(response));
    models = (await response.json()).data.filter((each) => TASKS.includes(each.task));
    showModels();
    if (!models.some(canAnswer)) setTimeout(loadModels, LOOK_AGAIN_MS);
  } catch (error) {
    say(sentenceFor(error));
  }
}

function chosen() {
  return [fields.model.value, fields.compare.value].map(modelOf).filter(Boolean);
}

const takesPictures = () => chosen().some((each) => each.architecture.input_modalities.includes("image"));

function showAbilities() {
  part("add-picture").hidden = !takesPictures();
  if (isWaiting && chosen().length) send();
}

// -- The set-up, in the fields, in sessionStorage and in a link

function setUp() {
  const values = {};
  for (const name of FIELDS) {
    const field = fields[name];
    const value = field.type === "checkbox" ? field.checked : field.value || wanted[name];
    if (value) values[name] = value;
  }
  return values;
}

function fill(values) {
  for (const name of FIELDS) {
    const field = fields[name];
    const value = values[name] ?? "";
    if (field.type === "checkbox") field.checked = Boolean(value);
    else if (name !== "project" || [...field.options].some((each) => each.value === value)) field.value = value;
  }
  wanted = { model: values.model, compare: values.compare };
}

function textsOnly(turn) {
  if (turn.role === "user") return { role: "user", text: turn.text, pictures: [] };
  const answers = turn.answers.map(({ model, text, reasoning, calls }) => ({ model, text, reasoning, calls }));
  return { role: "assistant", answers };
}

function keep() {
  for (const kept of [turns, turns.map(textsOnly)]) {
    try {
      sessionStorage.setItem(STORE, JSON.stringify({ setUp: setUp(), turns: kept }));
      return;
    } catch {
      // Pictures may be larger than what a browser keeps.
    }
  }
}

const isText = (value) => typeof value === "string";
const isAnswer = ({ text, calls = [] }) => isText(text) && calls.every((each) => isText(each.id) && isText(each.name) && isText(each.text));

// Links are written by anyone.
function isTurn(turn) {
  if (turn.role === "user") return isText(turn.text) && turn.pictures.every((each) => each.startsWith("data:image/"));
  return turn.answers.length > 0 && turn.answers.every(isAnswer);
}

// -- A request of any of the APIs as a set-up and turns: chat completions, Responses, Messages

const textIn = (content) => [content ?? []].flat().map((each) => each?.text ?? each).filter(isText).join("\n");

function schemaIn({ response_format: chat, text, output_config: config, output_format: earlier }) {
  const format = chat ?? text?.format ?? config?.format ?? earlier;
  return format?.json_schema?.schema ?? format?.schema;
}

function toolOf({ function: made, name, description, strict, parameters, input_schema: schema }) {
  return { type: "function", function: made ?? { name, description, strict, parameters: parameters ?? schema } };
}

// The text, calls and results of a message, or of an item of Responses.
function saidIn(each) {
  const blocks = [each.content ?? []].flat();
  const isCall = each.type === "function_call";
  const calls = [
    ...(each.tool_calls ?? []).map((call) => ({ id: call.id, name: call.function.name, text: call.function.arguments })),
    ...blocks.filter((block) => block.type === "tool_use").map(({ id, name, input }) => ({ id, name, text: JSON.stringify(input) })),
    ...(isCall ? [{ id: each.call_id, name: each.name, text: each.arguments }] : []),
  ];
  const results = blocks.filter((block) => block.type === "tool_result").map((block) => [block.tool_use_id, textIn(block.content)]);
  if (each.role === "tool") results.push([each.tool_call_id, textIn(each.content)]);
  if (each.type === "function_call_output") results.push([each.call_id, textIn(each.output)]);
  return { role: isCall ? "assistant" : each.role, text: each.role === "tool" ? "" : textIn(each.content), calls, results };
}

function turnsIn(said, model) {
  const found = [];
  const known = {};
  for (const { role, text, calls, results } of said) {
    for (const [id, result] of results) if (known[id]) known[id].result = result;
    for (const call of calls) known[call.id] = call;
    const last = found.at(-1)?.answers?.[0];
    if (role === "user" && text) found.push({ role, text, pictures: [] });
    else if (role === "assistant" && !text && last?.calls.every((call) => call.result === undefined)) last.calls.push(...calls);
    else if (role === "assistant") found.push({ role, answers: [{ model, text, calls }] });
  }
  return found;
}

function ofRequest(asked, project) {
  const said = [asked.messages ?? asked.input ?? asked.prompt].flat().map((each) => (isText(each) ? { role: "user", content: each } : each)).map(saidIn);
  const above = said.filter((each) => ["system", "developer"].includes(each.role)).map((each) => each.text);
  const tools = (asked.tools ?? []).filter((each) => each.function || each.parameters || each.input_schema).map(toolOf);
  const schema = schemaIn(asked);
  const setUp = {
    ...Object.fromEntries([...NUMBERS, "model"].map((name) => [name, asked[name]])),
    project,
    mode: asked.prompt === undefined ? "" : "completion",
    max_tokens: asked.max_completion_tokens ?? asked.max_output_tokens ?? asked.max_tokens,
    reasoning_effort: asked.reasoning_effort ?? asked.reasoning?.effort,
    stop: [asked.stop ?? asked.stop_sequences ?? []].flat().map((each) => each.replaceAll("\n", "\\n")).join("\n"),
    system: [textIn(asked.system), asked.instructions, ...above].filter(Boolean).join("\n"),
    schema: schema && JSON.stringify(schema, null, 1),
    tools: tools.length ? JSON.stringify(tools, null, 1) : "",
    logprobs: Boolean(asked.logprobs),
  };
  return { setUp, turns: turnsIn(said, asked.model) };
}

function restore() {
  const shared = location.hash.slice(1);
  let kept = {};
  try {
    kept = JSON.parse(shared ? decodeURIComponent(shared) : sessionStorage.getItem(STORE)) ?? {};
    if (kept.request) kept = ofRequest(kept.request, kept.project);
    if (!(kept.turns ?? []).every(isTurn)) throw new TypeError();
  } catch {
    kept = {};
    say("The set-up in this link cannot be read.");
  }
  fill(kept.setUp ?? {});
  turns = kept.turns ?? [];
  if (turns.at(-1)?.role === "user") {
    const last = turns.pop();
    part("question").value = last.text;
    pictures = last.pictures;
    drawPictures();
  }
  const query = new URLSearchParams(location.search);
  wanted.model = query.get("model") || wanted.model;
  history.replaceState(null, "", location.pathname);
}

function showLink() {
  const shared = JSON.stringify({ setUp: setUp(), turns: turns.map(textsOnly) });
  part("link").textContent = `${location.origin}${location.pathname}#${encodeURIComponent(shared)}`;
  part("link").hidden = false;
}

// -- A request

function contentOf(turn) {
  if (!turn.pictures.length) return turn.text;
  const shown = turn.pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  return [...shown, { type: "text", text: turn.text }];
}

function messagesOfAnswer({ text, calls }) {
  if (!calls?.length) return [{ role: "assistant", content: text }];
  const made = calls.map((each) => ({ id: each.id, type: "function", function: { name: each.name, arguments: each.text } }));
  return [
    { role: "assistant", content: text, tool_calls: made },
    ...calls.map((each) => ({ role: "tool", tool_call_id: each.id, content: each.result ?? "" })),
  ];
}

const ownAnswer = (turn, column) => turn.answers[column] ?? turn.answers[0];

// The conversation as one model knows it. `column`: which of two answers is its own.
function messagesOf(before, column) {
  const system = fields.system.value.trim() ? [{ role: "system", content: fields.system.value }] : [];
  const said = before.flatMap((turn) => (turn.role === "user"
    ? [{ role: "user", content: contentOf(turn) }]
    : messagesOfAnswer(ownAnswer(turn, column))));
  return [...system, ...said.filter((each) => each.content.length || each.role === "tool" || each.tool_calls)];
}

// A model is asked after a message of the person, and after results of its own calls.
function isDue(before, column) {
  const last = before.at(-1);
  return last.role === "user" || Boolean(ownAnswer(last, column).calls?.length);
}

function jsonIn(name, title) {
  try {
    return JSON.parse(fields[name].value);
  } catch (error) {
    throw new Error(`${title} cannot be read. ${error.message}.`);
  }
}

const pathOf = (model) => (
  model.task === "completion" || fields.mode.value === "completion" ? "completions" : "chat/completions");

function bodyOf(model, before, column) {
  const isChat = pathOf(model) === "chat/completions";
  const body = { model: model.id };
  if (isChat) body.messages = messagesOf(before, column);
  else body.prompt = before.map((turn) => turn.text ?? turn.answers[0].text).join("");
  for (const name of NUMBERS) {
    const field = fields[name];
    if (field.value) body[isChat && name === "max_tokens" ? "max_completion_tokens" : name] = Number(field.value);
  }
  if (isChat && fields.reasoning_effort.value) body.reasoning_effort = fields.reasoning_effort.value;
  const stop = fields.stop.value.split("\n").filter(Boolean);
  if (stop.length) body.stop = stop.map((each) => each.replaceAll("\\n", "\n"));
  if (fields.schema.value.trim()) {
    const schema = jsonIn("schema", "The JSON schema");
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  }
  if (isChat && fields.tools.value.trim()) body.tools = jsonIn("tools", "The list of tools");
  if (fields.logprobs.checked) Object.assign(body, isChat ? { logprobs: true, top_logprobs: 3 } : { logprobs: 3 });
  return body;
}

function percent(logprob) {
  return `${(100 * Math.exp(logprob)).toFixed(1)} %`;
}

function tokenOf({ token, logprob, top_logprobs: others }) {
  const words = others.map((each) => `${JSON.stringify(each.token)} ${percent(each.logprob)}`);
  return { token, isUnsure: logprob < Math.log(0.5), title: words.join("\n") || percent(logprob) };
}

// Completions have lists instead of objects.
function tokensIn({ content, tokens = [], token_logprobs: logprobs, top_logprobs: others }) {
  const inLists = tokens.map((token, index) => (
    { token, logprob: logprobs[index], top_logprobs: Object.entries(others?.[index] ?? {}).map(([name, value]) => ({ token: name, logprob: value })) }));
  return (content ?? inLists).map(tokenOf);
}

function takeCalls(answer, parts) {
  for (const { index, id, function: made } of parts) {
    const call = (answer.calls[index] ??= { id, name: "", text: "" });
    call.name += made?.name ?? "";
    call.text += made?.arguments ?? "";
  }
}

function take(answer, event, ms) {
  if (event.error) throw new Error(event.error.message);
  if (event.usage) answer.usage = event.usage;
  const choice = event.choices?.[0];
  if (!choice) return;
  const text = choice.delta?.content ?? choice.text ?? "";
  const thought = choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
  const parts = choice.delta?.tool_calls ?? [];
  if (text || thought || parts.length) {
    answer.firstMs ??= ms;
    answer.lastMs = ms;
  }
  answer.text += text;
  answer.reasoning += thought;
  takeCalls(answer, parts);
  if (text && choice.logprobs) answer.tokens.push(...tokensIn(choice.logprobs));
  if (choice.finish_reason) answer.end = ENDS[choice.finish_reason] ?? choice.finish_reason;
}

// The limits that bind next, as they were when the answer began.
function leftOf(headers) {
  const names = ["requests", "tokens"].filter((each) => headers.has(`x-ratelimit-remaining-${each}`));
  const words = names.map((each) => `${rounded(Number(headers.get(`x-ratelimit-remaining-${each}`)), 0)} ${each}`);
  return words.length ? `${words.join(" and ")} left of your limits` : "";
}

async function answerInto(answer, model, body, signal, show) {
  try {
    const asked = { ...body, stream: true, stream_options: { include_usage: true } };
    const options = { method: "POST", body: JSON.stringify(asked), signal };
    const sinceMs = performance.now();
    const response = await call(pathOf(model), options);
    answer.left = leftOf(response.headers);
    if (!response.ok) throw new Error(await sentenceOf(response));
    for await (const event of eventsOf(response)) {
      take(answer, event, performance.now() - sinceMs);
      show();
    }
  } catch (error) {
    if (error.name === "AbortError") answer.end = "stopped by you";
    else answer.error = sentenceFor(error);
  }
  show();
}

// A request that cannot be written leaves the conversation as it is.
async function ask(before) {
  const asked = chosen();
  let bodies;
  try {
    bodies = asked.map((model, column) => isDue(before, column) && bodyOf(model, before, column));
  } catch (error) {
    say(error.message);
    return;
  }
  const answers = asked.map((model, column) => ({
    model: model.id, text: "", reasoning: "", tokens: [], calls: [], end: bodies[column] ? undefined : "called no tool, so it is not asked",
  }));
  turns = [...before, { role: "assistant", answers }];
  editing = null;
  running = new AbortController();
  draw();
  say("Answering");
  const columns = part("turns").lastElementChild.querySelectorAll(".answer");
  await Promise.all(answers.map((answer, column) => bodies[column] && answerInto(
    answer, asked[column], bodies[column], running.signal, soon(() => drawAnswer(columns[column], answer)),
  )));
  running = null;
  if (turns.some((each) => each.answers === answers)) say(answers.some((each) => each.error) ? "There was an error" : "Answered");
  draw();
  keep();
}

function send(event) {
  event?.preventDefault();
  const text = part("question").value.trim();
  if (running || !(text || pictures.length)) return;
  isWaiting = !chosen().length;
  if (isWaiting) {
    say("Your message is sent as soon as a model is ready.");
    return;
  }
  ask([...turns, { role: "user", text, pictures }]);
  if (!running) return;
  pictures = [];
  part("question").value = "";
  drawPictures();
}

function askFrom(number) {
  ask(turns.slice(0, number));
}

// -- The conversation on the page

// At most one drawing for each frame of the screen.
function soon(show) {
  let isDue = false;
  return () => {
    if (!isDue) requestAnimationFrame(() => { isDue = false; show(); });
    isDue = true;
  };
}

const rounded = (number, digits) => number.toLocaleString("en-GB", { maximumFractionDigits: digits });

function lineOf({ usage, firstMs, lastMs, end, left }) {
  const words = [];
  if (firstMs !== undefined) words.push(`first token after ${rounded(firstMs / 1000, 2)} s`);
  if (usage) {
    const pace = (usage.completion_tokens - 1) / ((lastMs - firstMs) / 1000);
    // Tokens that come in one piece tell no pace.
    if (lastMs - firstMs > 10 && pace > 0) words.push(`${rounded(pace, 1)} tokens/s`);
    words.push(`${rounded(usage.prompt_tokens, 0)} prompt tokens`);
    words.push(`${rounded(usage.completion_tokens, 0)} output tokens`);
  }
  if (end) words.push(end);
  if (left) words.push(left);
  return words.join(" · ");
}

function saidOf({ text, tokens }) {
  // A token may be a part of a character: then the text alone is right.
  if (!tokens?.length || tokens.map((each) => each.token).join("") !== text) return [text];
  return tokens.map(({ token, title, isUnsure }) => make("span", {
    className: isUnsure ? "token unsure" : "token", textContent: token, title,
  }));
}

function callOf(call) {
  const result = make("textarea", {
    value: call.result ?? "", rows: 2, placeholder: '{"temperature": 21}',
    oninput: () => { call.result = result.value; keep(); },
  });
  return make("div", { className: "call" }, make("code", { textContent: `${call.name} ${call.text}` }),
    make("label", { textContent: `Result of ${call.name}` }, result));
}

function drawAnswer(column, answer) {
  const [thoughts, said, calls, error, line] = column.querySelectorAll(":scope > .part");
  thoughts.hidden = !answer.reasoning;
  thoughts.lastElementChild.textContent = answer.reasoning;
  said.replaceChildren(...(answer.end ? saidOf(answer) : [answer.text]));
  calls.replaceChildren(...(answer.calls ?? []).map(callOf));
  error.hidden = !answer.error;
  error.textContent = answer.error ?? "";
  line.textContent = lineOf(answer);
}

function columnOf(answer) {
  const column = make("div", { className: "answer" },
    make("div", { className: "quiet", textContent: answer.model }),
    make("details", { className: "part" }, make("summary", { textContent: "Reasoning" }), make("div", { className: "said quiet" })),
    make("div", { className: "part said" }),
    make("div", { className: "part" }),
    make("div", { className: "part message error" }),
    make("p", { className: "part quiet" }));
  drawAnswer(column, answer);
  return column;
}

function pictureOf(url) {
  return make("img", { src: url, alt: "A picture of the message" });
}

function editorOf(number, column) {
  const turn = turns[number];
  const target = turn.answers?.[column] ?? turn;
  const text = make("textarea", { value: target.text, rows: 4, ariaLabel: "The text of the message" });
  const save = () => {
    target.text = text.value;
    delete target.tokens;
    editing = null;
    if (turn.role === "user") askFrom(number + 1);
    else { draw(); keep(); }
  };
  const row = make("div", { className: "row" },
    button(turn.role === "user" ? "Save and ask again" : "Save", save),
    button("Cancel", () => { editing = null; draw(); }));
  return make("div", { className: "editor" }, text, row);
}

function actionsOf(number) {
  if (running) return [];
  const edit = (column) => () => { editing = [number, column]; draw(); part("turns").querySelector(".editor textarea").focus(); };
  if (turns[number].role === "user") return [button("Edit", edit(0))];
  const edits = turns[number].answers.map((each, column) => button(column ? "Edit the second" : "Edit", edit(column)));
  const isCalling = number === turns.length - 1 && turns[number].answers.some((each) => each.calls?.length);
  const results = isCalling ? [button("Send the results", () => askFrom(number + 1))] : [];
  return [...results, button("Ask again", () => askFrom(number)), ...edits];
}

function turnOf(turn, number) {
  const isEdited = editing?.[0] === number;
  const box = make("article", { className: `turn ${turn.role}`, ariaLabel: turn.role === "user" ? "You" : "Answer" });
  if (turn.role === "user") {
    if (turn.pictures.length) box.append(make("div", { className: "row shots" }, ...turn.pictures.map(pictureOf)));
    box.append(isEdited ? editorOf(number, 0) : make("div", { className: "said", textContent: turn.text }));
  } else {
    const columns = turn.answers.map((answer, column) => (
      isEdited && editing[1] === column ? editorOf(number, column) : columnOf(answer)));
    box.append(make("div", { className: "answers" }, ...columns));
  }
  if (!isEdited) box.append(make("div", { className: "row" }, ...actionsOf(number)));
  return box;
}

function draw() {
  part("turns").replaceChildren(...turns.map(turnOf));
  part("send").hidden = Boolean(running);
  part("stop-answer").hidden = !running;
  part("clear").textContent = cleared.length && !turns.length ? "Undo" : "Clear";
}

// -- Pictures

function drawPictures() {
  part("shots").replaceChildren(...pictures.map((url, number) => make("span", {}, pictureOf(url),
    button("Remove", () => { pictures.splice(number, 1); drawPictures(); }))));
}

function addPictures(files) {
  const found = [...files].filter((each) => each.type.startsWith("image/"));
  if (found.length && !takesPictures()) say("This model takes no pictures. Choose a vision model.");
  else for (const file of found) {
    const reader = new FileReader();
    reader.onload = () => { pictures.push(reader.result); drawPictures(); };
    reader.readAsDataURL(file);
  }
  return found.length > 0;
}

// -- The same request as code

const jsonOf = (body) => JSON.stringify(body, null, 2);

function pythonOf(value, indent = "    ") {
  const text = jsonOf(value).replaceAll("\n", `\n${indent}`);
  // Words of JSON outside strings.
  return text.replace(/"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g, (each) => ({ true: "True", false: "False", null: "None" }[each] ?? each));
}

const pictureForAnthropic = (url) => (
  { type: "image", source: { type: "base64", media_type: url.slice(5).split(";")[0], data: url.split(",")[1] } });

function messageForAnthropic({ role, content, tool_calls: calls = [], tool_call_id: id }) {
  if (role === "tool") return { role: "user", content: [{ type: "tool_result", tool_use_id: id, content }] };
  const parts = Array.isArray(content) ? content : [{ type: "text", text: content }];
  const said = parts.filter((each) => each.text !== "").map((each) => (each.type === "text" ? each : pictureForAnthropic(each.image_url.url)));
  const made = calls.map((each) => ({ type: "tool_use", id: each.id, name: each.function.name, input: JSON.parse(each.function.arguments || "{}") }));
  return { role, content: made.length || Array.isArray(content) ? [...said, ...made] : content };
}

function anthropicOf(body) {
  const { model, messages = [{ role: "user", content: body.prompt }], stop, response_format: format } = body;
  // The client of Anthropic has no names for these, the server reads them.
  const sampling = Object.entries(body).filter(([name]) => ["temperature", "top_p", "top_k"].includes(name));
  const schema = format?.json_schema.schema;
  return {
    model,
    max_tokens: body.max_completion_tokens ?? body.max_tokens ?? 1024,
    system: messages.find((each) => each.role === "system")?.content,
    messages: messages.filter((each) => each.role !== "system").map(messageForAnthropic),
    tools: body.tools?.map(({ function: tool }) => ({ name: tool.name, description: tool.description, input_schema: tool.parameters ?? { type: "object" } })),
    stop_sequences: stop,
    output_config: schema && { format: { type: "json_schema", schema } },
    extra_body: sampling.length ? Object.fromEntries(sampling) : undefined,
  };
}

// The Python client takes only names that OpenAI knows.
function pythonBodyOf(body) {
  const isOwn = ([name]) => OWN_NUMBERS.includes(name);
  const own = Object.entries(body).filter(isOwn);
  const usual = Object.fromEntries(Object.entries(body).filter((each) => !isOwn(each)));
  return own.length ? { ...usual, extra_body: Object.fromEntries(own) } : usual;
}

const answerIn = (body, path) => {
  if (path === "completions") return "answer.choices[0].text";
  return body.tools ? "answer.choices[0].message" : "answer.choices[0].message.content";
};

const CODES = {
  curl: (body, url, path) => `curl ${url}/v1/${path} \\\n  -H "Authorization: Bearer $VINERY_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -d @- <<'END'\n${jsonOf(body)}\nEND`,
  python: (body, url, path) => `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${url}/v1", api_key=os.environ["VINERY_API_KEY"])\nanswer = client.${path.replace("/", ".")}.create(\n    **${pythonOf(pythonBodyOf(body))}\n)\nprint(${answerIn(body, path)})`,
  javascript: (body, url, path) => `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${url}/v1", apiKey: process.env.VINERY_API_KEY });\nconst answer = await client.${path.replace("/", ".")}.create(${jsonOf(body)});\nconsole.log(${answerIn(body, path)});`,
  anthropic: (body, url) => `import os\nfrom anthropic import Anthropic\n\nclient = Anthropic(base_url="${url}", api_key=os.environ["VINERY_API_KEY"])\nanswer = client.messages.create(\n    **${pythonOf(anthropicOf(body))}\n)\nprint(answer.content)`,
};

// A long picture is whole for the clipboard, and short for the eye.
function codeOf(text) {
  return text.split(/(data:[^"]{200,}|"[\w+/=]{200,}")/).map((each, number) => (
    number % 2 ? make("span", { className: "long", textContent: each }) : each));
}

function showCode(language) {
  const [model] = chosen();
  // The request with the message that is being written, or that of the last answer.
  const draft = part("question").value.trim();
  const before = draft ? [...turns, { role: "user", text: draft, pictures }] : turns.slice(0, -1);
  const said = before.length ? before : [{ role: "user", text: "Hello!", pictures: [] }];
  try {
    const text = CODES[language](bodyOf(model, said, 0), form.dataset.baseUrl, pathOf(model));
    part("code-text").replaceChildren(...codeOf(text));
    part("code-note").textContent = language === "anthropic" ? LEFT_OUT : "";
  } catch (error) {
    part("code-text").replaceChildren();
    part("code-note").textContent = error.message;
  }
  for (const each of part("code").querySelectorAll("[data-language]")) {
    each.setAttribute("aria-pressed", String(each.dataset.language === language));
  }
  if (!part("code").open) part("code").showModal();
}

// -- What the person does

window.addEventListener("hashchange", () => location.reload());
form.addEventListener("submit", send);
form.addEventListener("change", (event) => {
  if (event.target === fields.project) { secret = ""; say(""); loadModels(); }
  if (["model", "compare"].includes(event.target.name)) { wanted[event.target.name] = event.target.value; showAbilities(); }
  keep();
});
part("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
});
part("question").addEventListener("paste", (event) => {
  if (addPictures(event.clipboardData.files)) event.preventDefault();
});
form.addEventListener("dragover", (event) => event.preventDefault());
form.addEventListener("drop", (event) => { if (addPictures(event.dataTransfer.files)) event.preventDefault(); });
part("picture").addEventListener("change", (event) => { addPictures(event.target.files); event.target.value = ""; });
part("stop-answer").addEventListener("click", () => running?.abort());
part("clear").addEventListener("click", () => {
  running?.abort();
  [turns, cleared] = [turns.length ? [] : cleared, turns];
  draw();
  say(turns.length || !cleared.length ? "" : "The conversation is cleared. Undo brings it back.");
  keep();
});
part("copy-link").addEventListener("click", showLink);
part("view-code").addEventListener("click", () => { if (chosen().length) showCode("curl"); });
part("code").addEventListener("click", ({ target }) => { if (target.dataset.language) showCode(target.dataset.language); });
part("close-code").addEventListener("click", () => part("code").close());

if (matchMedia("(max-width: 1000px)").matches) part("set-up").open = false;
restore();
draw();
showAbilities();
loadModels();
