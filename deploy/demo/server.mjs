// SPDX-License-Identifier: Apache-2.0
// An inference server for the demo: llama.cpp behind the OpenAI chat API, one write per sampled token.
// Requests are decoded together (continuous batching), as production servers do. Not a server to deploy.
//
//   node server.mjs MODEL.gguf     prints `ready PORT` once it listens on 127.0.0.1
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const MODEL_NAME = 'inferwire-demo';
const MAX_STREAMS = 8;
const MAX_BODY_BYTES = 1 << 20;
const CONTEXT_TOKENS = 2048; // as the model file says, for each stream

// The addon alone: the package around it, @fugood/llama.node, brings 250 MB of CUDA and Vulkan builds.
const { LlamaContext } = createRequire(import.meta.url)(`@fugood/node-llama-linux-${process.arch}`);
LlamaContext.toggleNativeLog(true, () => {});
const llama = new LlamaContext({
  model: process.argv[2],
  n_ctx: CONTEXT_TOKENS * MAX_STREAMS,
  n_parallel: MAX_STREAMS,
  n_threads: 1,
  n_gpu_layers: 0,
});
llama.enableParallelMode({ n_parallel: MAX_STREAMS, n_batch: 512 });

class BadRequest extends Error {}

// Samples tokens for one request. Calls on_token(text) for each; on_end(error, {prompt, completion}) once, with token counts.
// Returns a function that stops it.
function generate(options, on_token, on_end) {
  const { requestId } = llama.queueCompletion(options, (error, result) => {
    if (error) return on_end(error);
    if (result.token !== undefined) return on_token(result.token);
    on_end(null, { prompt: result.timings.prompt_n, completion: result.timings.predicted_n });
  });
  return () => llama.cancelRequest(requestId);
}

function generation_options(ask) {
  if (!Array.isArray(ask.messages) || ask.messages.length === 0) throw new BadRequest('messages: expected a list of messages');
  const max_tokens = ask.max_completion_tokens ?? ask.max_tokens ?? 64;
  if (!Number.isInteger(max_tokens) || max_tokens < 1) throw new BadRequest('max_tokens: expected a number of at least 1');
  const prompt = ask.messages.map((message) => `${message.role} ${message.content}`).join(' ');
  if (Buffer.byteLength(prompt) + max_tokens > CONTEXT_TOKENS) throw new BadRequest('prompt and max_tokens exceed the context');
  return { prompt, n_predict: max_tokens, temperature: ask.temperature ?? 0.8, seed: ask.seed ?? 1 };
}

async function read_json(request) {
  const pieces = [];
  let bytes = 0;
  for await (const piece of request) {
    bytes += piece.length;
    if (bytes > MAX_BODY_BYTES) throw new BadRequest('body too large');
    pieces.push(piece);
  }
  try {
    return JSON.parse(Buffer.concat(pieces));
  } catch {
    throw new BadRequest('the body is not JSON');
  }
}

function send_json(response, status, value) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

function send_error(response, status, message) {
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  if (response.headersSent) return response.destroy(); // a stream that breaks must not look complete
  send_json(response, status, { error: { message, type, code: null, param: null } });
}

const usage_of = ({ prompt, completion }) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
});

function stream_answer(ask, options, head, response) {
  const with_usage = ask.stream_options?.include_usage === true;
  const send = (choices, usage) =>
    response.write(`data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', choices, ...usage })}\n\n`);
  const choice = (delta, finish_reason) => [{ index: 0, delta, logprobs: null, finish_reason }];

  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
  send(choice({ role: 'assistant', content: '' }, null));
  const stop = generate(
    options,
    (text) => send(choice({ content: text }, null)),
    (error, tokens) => {
      if (error) return send_error(response, 500, String(error.message ?? error));
      send(choice({}, tokens.completion >= options.n_predict ? 'length' : 'stop'));
      if (with_usage) send([], { usage: usage_of(tokens) });
      response.end('data: [DONE]\n\n');
    },
  );
  response.on('close', () => response.writableFinished || stop());
}

function whole_answer(options, head, response) {
  let content = '';
  const stop = generate(
    options,
    (text) => (content += text),
    (error, tokens) => {
      if (error) return send_error(response, 500, String(error.message ?? error));
      const finish_reason = tokens.completion >= options.n_predict ? 'length' : 'stop';
      const choices = [{ index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason }];
      send_json(response, 200, { ...head, object: 'chat.completion', choices, usage: usage_of(tokens) });
    },
  );
  response.on('close', () => response.writableFinished || stop());
}

async function chat(request, response) {
  const ask = await read_json(request);
  const options = generation_options(ask);
  const head = {
    id: `chatcmpl-${randomUUID().replaceAll('-', '')}`,
    created: Math.floor(Date.now() / 1000),
    model: MODEL_NAME,
  };
  if (ask.stream) stream_answer(ask, options, head, response);
  else whole_answer(options, head, response);
}

const server = createServer(async (request, response) => {
  const route = `${request.method} ${request.url.split('?')[0]}`;
  try {
    if (route === 'POST /v1/chat/completions') await chat(request, response);
    else if (route === 'GET /v1/models')
      send_json(response, 200, { object: 'list', data: [{ id: MODEL_NAME, object: 'model', owned_by: 'inferwire' }] });
    else send_error(response, 404, `no such route: ${route}`);
  } catch (error) {
    send_error(response, error instanceof BadRequest ? 400 : 500, error.message);
  }
});
server.keepAliveTimeout = 60_000; // longer than the gateway keeps its idle connections
server.listen(0, '127.0.0.1', () => console.log(`ready ${server.address().port}`));
process.on('SIGTERM', () => process.exit(0)); // the addon's threads would keep the process alive
