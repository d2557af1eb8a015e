// The official client for Node against a gateway: node client.mjs <base URL>. Needs the targets of tests/clients/conftest.py.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const HELLO = "Grüße aus Köln: 你好 👋.";
const MESSAGES = [{ role: "user", content: "Say hello." }];
const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
const FUNCTIONS = ["weather", "climate"].map((name) => ({ name, parameters: PARAMETERS, strict: true }));
const TOOLS = FUNCTIONS.map((one) => ({ type: "function", function: one }));
const ARGUMENTS = { city: "Köln", days: 7 };
const COST = 0.00004; // 20 tokens in and 10 out, at 1 and 2 USD per million

const client = new OpenAI({
  baseURL: process.argv[2],
  apiKey: "unused",
  maxRetries: 0,
  timeout: 10_000,
  defaultHeaders: { "x-lowpass-tags": "node" },
});

async function collect(stream) {
  const found = [];
  for await (const one of stream) found.push(one);
  return found;
}

const text = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join("");

test("chat", async () => {
  const call = client.chat.completions.create({ model: "chat/normal", messages: MESSAGES });
  const { data, response, request_id } = await call.withResponse();
  assert.equal(data.choices[0].message.content, HELLO);
  assert.equal(data.model, "chat/normal");
  assert.deepEqual([data.usage.prompt_tokens, data.usage.completion_tokens, data.usage.cost], [20, 10, COST]);
  assert.equal(request_id, response.headers.get("x-lowpass-decision"));
  assert.equal(response.headers.get("x-lowpass-model"), "chat/normal");
});

test("chat, streamed", async () => {
  const asked = { model: "chat/normal", messages: MESSAGES, stream: true };
  const bare = await collect(await client.chat.completions.create(asked));
  assert.equal(text(bare), HELLO);
  assert.ok(bare.every((chunk) => !chunk.usage && chunk.choices.length === 1));
  const counted = await collect(await client.chat.completions.create({ ...asked, stream_options: { include_usage: true } }));
  assert.equal(text(counted), HELLO);
  assert.deepEqual(counted.at(-1).choices, []);
  assert.equal(counted.at(-1).usage.cost, COST);
  assert.equal(counted.filter((chunk) => chunk.usage).length, 1);
});

test("tools, streamed and not, and the turn after them", async () => {
  const asked = { model: "chat/parallel-tools", messages: MESSAGES, tools: TOOLS };
  const whole = await client.chat.completions.create(asked);
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
  for (const { choices } of [whole, streamed]) {
    assert.equal(choices[0].finish_reason, "tool_calls");
    const calls = choices[0].message.tool_calls;
    assert.deepEqual(calls.map((call) => call.function.name), ["weather", "climate"]);
    for (const call of calls) assert.deepEqual(JSON.parse(call.function.arguments), ARGUMENTS);
  }
  const results = whole.choices[0].message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "{}" }));
  const messages = [...MESSAGES, whole.choices[0].message, ...results];
  const answer = await client.chat.completions.create({ model: "chat/normal", messages, tools: TOOLS });
  assert.equal(answer.choices[0].message.content, HELLO);
});

test("a JSON schema, parsed", async () => {
  const json_schema = { name: "weather", schema: PARAMETERS, strict: true };
  const response_format = { type: "json_schema", json_schema };
  const answer = await client.chat.completions.parse({ model: "chat/schema", messages: MESSAGES, response_format });
  assert.deepEqual(answer.choices[0].message.parsed, ARGUMENTS);
});

for (const kind of ["chat", "native"]) {
  test(`responses over ${kind}`, async () => {
    const whole = await client.responses.create({ model: `${kind}/normal`, input: "Hi" });
    const events = await collect(await client.responses.create({ model: `${kind}/normal`, input: "Hi", stream: true }));
    const deltas = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
    assert.equal(deltas.join(""), HELLO);
    assert.equal(events.at(-1).type, "response.completed");
    for (const response of [whole, events.at(-1).response]) {
      assert.equal(response.status, "completed");
      assert.equal(response.model, `${kind}/normal`);
      assert.deepEqual([response.usage.input_tokens, response.usage.output_tokens, response.usage.cost], [20, 10, COST]);
    }
    assert.equal(whole.output_text, HELLO);
  });

  test(`tools of responses over ${kind}`, async () => {
    const tools = FUNCTIONS.map((one) => ({ type: "function", ...one }));
    const asked = { model: `${kind}/tools`, input: "Hi", tools };
    const whole = await client.responses.create(asked);
    const streamed = await client.responses.stream(asked).finalResponse();
    for (const { output } of [whole, streamed]) {
      const [call] = output.filter((item) => item.type === "function_call");
      assert.equal(call.name, "weather");
      assert.deepEqual(JSON.parse(call.arguments), ARGUMENTS);
    }
  });
}

test("completions", async () => {
  const whole = await client.completions.create({ model: "chat/normal", prompt: "Hi" });
  const pieces = await collect(await client.completions.create({ model: "chat/normal", prompt: "Hi", stream: true }));
  assert.equal(whole.choices[0].text, HELLO);
  assert.equal(pieces.map((piece) => piece.choices[0].text).join(""), HELLO);
});

test("embeddings in both encodings", async () => {
  const vector = [0.25, -0.5, 0.125, 1];
  const unasked = await client.embeddings.create({ model: "chat/normal", input: ["a", "b"] });
  const floats = await client.embeddings.create({ model: "chat/normal", input: "a", encoding_format: "float" });
  assert.deepEqual(unasked.data.map((row) => [...row.embedding]), [vector, vector]);
  assert.deepEqual(floats.data.map((row) => row.embedding), [vector]);
  assert.equal(unasked.usage.prompt_tokens, 8);
});

test("models", async () => {
  const ids = (await collect(client.models.list())).map((model) => model.id);
  assert.ok(ids.includes("auto") && ids.includes("chat/normal"));
  assert.equal((await client.models.retrieve("chat/normal")).id, "chat/normal");
});

test("errors are of the right class", async () => {
  const fails = async (model, kind, status, code) => {
    await assert.rejects(client.chat.completions.create({ model, messages: MESSAGES }), (error) => {
      assert.ok(error instanceof kind, `${model}: ${error}`);
      assert.deepEqual([error.status, error.code], [status, code]);
      assert.equal(error.requestID, error.headers.get("x-request-id"));
      return true;
    });
  };
  await fails("nobody", OpenAI.NotFoundError, 404, "model_not_found");
  await fails("chat/context-length", OpenAI.BadRequestError, 400, "context_length_exceeded");
  await fails("chat/error-500", OpenAI.InternalServerError, 502, "upstream_error");
  await fails("chat/auth", OpenAI.InternalServerError, 502, "upstream_error");
});

test("a broken stream throws", async () => {
  const stream = await client.chat.completions.create({ model: "chat/cut-after-first", messages: MESSAGES, stream: true });
  await assert.rejects(collect(stream), OpenAI.APIError);
  const events = await client.responses.create({ model: "chat/cut-after-first", input: "Hi", stream: true });
  await assert.rejects(collect(events), OpenAI.APIError);
});

test("a client that is told to try again does", async () => {
  const keen = client.withOptions({ maxRetries: 1 });
  const answer = await keen.chat.completions.create({ model: "chat/flaky", messages: MESSAGES });
  assert.equal(answer.choices[0].message.content, HELLO);
});

test("a client that leaves", async () => {
  const late = client.chat.completions.create({ model: "chat/hang", messages: MESSAGES }, { timeout: 300 });
  await assert.rejects(late, OpenAI.APIConnectionTimeoutError);
  const stream = await client.chat.completions.create({ model: "chat/hang-after-first", messages: MESSAGES, stream: true });
  for await (const chunk of stream) if (text([chunk])) break;
});
