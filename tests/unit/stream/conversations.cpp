// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/stream/conversations.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

namespace inferwire::stream_test {

namespace {

using What = Turn::What;

Turn ask(std::string bytes) { return {What::kRequest, std::move(bytes)}; }
Turn say(std::string bytes) { return {What::kResponse, std::move(bytes)}; }
Turn acknowledged() { return {What::kAcknowledged, {}}; }

std::string join(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const auto part : parts) all += part;
  return all;
}

std::string chat_delta(std::string_view delta, std::string_view finish = "null", std::string_view more = "") {
  return sse(join({R"({"id":"chatcmpl-9f2c1e7a4b","object":"chat.completion.chunk","created":1724000000,)",
                   R"("model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"delta":)", delta,
                   R"(,"logprobs":null,"finish_reason":)", finish, R"(}])", more, "}"}));
}

std::string chat_text(std::string_view text) { return chat_delta(join({R"({"content":")", text, R"("})"})); }

const std::string kRole = chat_delta(R"({"role":"assistant","content":""})");
const std::string kStop = chat_delta(R"({"content":""})", R"("stop","stop_reason":null)");
const std::string kDone = "data: [DONE]\n\n";

std::string chat_usage(int in, int out, std::string_view more = "") {
  return sse(join({R"({"id":"chatcmpl-9f2c1e7a4b","object":"chat.completion.chunk","created":1724000000,)",
                   R"("model":"meta-llama/Llama-3.1-8B-Instruct","choices":[],"usage":{"prompt_tokens":)",
                   std::to_string(in), R"(,"total_tokens":)", std::to_string(in + out), R"(,"completion_tokens":)",
                   std::to_string(out), R"(,"prompt_tokens_details":null})", more, "}"}));
}

std::string uvicorn_head() { return head(200, join({"date: Fri, 21 Aug 2026 10:00:00 GMT\r\n", kSse})); }

std::string anthropic_event(std::string_view name, std::string_view json) {
  return join({"event: ", name, "\ndata: ", json, "\n\n"});
}

std::string printable(const char* text, std::size_t max) { return std::string(text, strnlen(text, max)); }

}  // namespace

std::string post(std::string_view path, std::string_view body, std::string_view more_headers) {
  return join({"POST ", path, " HTTP/1.1\r\nHost: llm.local:8000\r\nUser-Agent: OpenAI/JS 6.49\r\n",
               "Accept: application/json\r\nContent-Type: application/json\r\n", more_headers,
               "Content-Length: ", std::to_string(body.size()), "\r\n\r\n", body});
}

std::string head(int code, std::string_view headers) {
  return join({"HTTP/1.1 ", std::to_string(code), code == 200 ? " OK" : " Whatever", "\r\n", headers, "\r\n"});
}

std::string chunk(std::string_view part) {
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", part.size());
  return join({size, part, "\r\n"});
}

std::string chunked(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const auto part : parts) all += chunk(part);
  return all;
}

std::string with_length(int code, std::string_view content_type, std::string_view body) {
  return head(code,
              join({"Content-Type: ", content_type, "\r\nContent-Length: ", std::to_string(body.size()), "\r\n"})) +
         std::string(body);
}

std::string sse(std::string_view json) { return join({"data: ", json, "\n\n"}); }

std::string openai_stream(int events, std::string_view id, std::string_view model) {
  const std::string front = join({R"({"id":")", id, R"(","object":"chat.completion.chunk","model":")", model, R"(",)"});
  std::string all = uvicorn_head();
  all += chunk(sse(front + R"("choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})"));
  for (int i = 0; i < events; i++)
    all += chunk(sse(front + R"("choices":[{"index":0,"delta":{"content":"tok)" + std::to_string(i) + R"("}}]})"));
  all += chunk(sse(front + R"("choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})"));
  all += chunk(sse(front + R"("choices":[],"usage":{"prompt_tokens":11,"completion_tokens":)" + std::to_string(events) +
                   R"(,"total_tokens":)" + std::to_string(11 + events) + "}}"));
  all += chunk(kDone);
  all += kLastChunk;
  return all;
}

// ---- Servers ----

Conversation vllm_chat() {
  return {"vllm_chat",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("Hel"))),
           say(chunk(chat_text("lo"))), say(chunk(chat_text(" wörld"))),
           say(join({chunk(chat_text("!")), chunk(kStop), chunk(chat_usage(23, 4)), chunk(kDone), kLastChunk})),
           acknowledged()}};
}

Conversation vllm_chat_continuous_usage() {
  auto with_usage = [](std::string_view text, int out) {
    return chat_delta(join({R"({"content":")", text, R"("})"}), "null",
                      join({R"(,"usage":{"prompt_tokens":23,"total_tokens":)", std::to_string(23 + out),
                            R"(,"completion_tokens":)", std::to_string(out), "}"}));
  };
  return {"vllm_chat_continuous_usage",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole)), say(chunk(with_usage("a", 3))),
           say(chunk(with_usage("b", 8))), say(chunk(with_usage("c", 11))), say(chunk(kStop)),
           say(chunk(chat_usage(23, 12)) + chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation vllm_completions() {
  auto text = [](std::string_view t, std::string_view finish) {
    return sse(join({R"({"id":"cmpl-77","object":"text_completion","created":1,"model":"qwen","choices":[{"index":0,)",
                     R"("text":")", t, R"(","logprobs":null,"finish_reason":)", finish,
                     R"(,"stop_reason":null}],"usage":null})"}));
  };
  return {"vllm_completions",
          {ask(post("/v1/completions", R"({"prompt":"Once","stream":true})")), say(uvicorn_head()),
           say(chunk(text(" upon", "null"))), say(chunk(text(" a", "null"))),
           say(chunk(text(" time", R"("length")")) + chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation vllm_reasoning() {
  return {"vllm_reasoning",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole)),
           say(chunk(chat_delta(R"({"reasoning_content":"Let me"})"))),
           say(chunk(chat_delta(R"({"reasoning_content":" think"})"))),
           say(chunk(chat_delta(R"({"reasoning_content":""})"))), say(chunk(chat_text("42"))),
           say(chunk(kStop) + chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation vllm_tool_calls() {
  return {
      "vllm_tool_calls",
      {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole)),
       say(chunk(chat_delta(
           R"({"tool_calls":[{"id":"call_1","type":"function","index":0,"function":{"name":"weather","arguments":""}}]})"))),
       say(chunk(chat_delta(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"city\": "}}]})"))),
       say(chunk(chat_delta(R"({"tool_calls":[{"index":0,"function":{"arguments":"\"Rome\"}"}}]})"))),
       say(chunk(chat_delta(R"({"content":"","tool_calls":[]})", R"("tool_calls")"))),
       say(chunk(chat_usage(80, 19)) + chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation vllm_error_then_done() {
  return {
      "vllm_error_then_done",
      {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("Hi"))),
       say(chunk(sse(
           R"({"error": {"object": "error", "message": "EngineCore died", "type": "InternalServerError", "code": 500}})"))),
       say(chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation vllm_per_request_metrics() {
  return {
      "vllm_per_request_metrics",
      {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("Hi"))),
       say(join(
           {chunk(kStop),
            chunk(chat_usage(
                5, 1,
                R"(,"metrics":{"queue_time_ms":12.5,"time_to_first_token_ms":81.0625,"generation_time_ms":3.0,"mean_itl_ms":null,"tokens_per_second":1.0})")),
            chunk(kDone), kLastChunk})),
       acknowledged()}};
}

Conversation vllm_keep_alive_comments() {
  return {"vllm_keep_alive_comments",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(": keep-alive\n\n")),
           say(chunk(": keep-alive\n\n")), say(chunk(":\n\n")), say(chunk(kRole) + chunk(chat_text("late"))),
           say(chunk(": ping - 2026-08-21 10:00:00.1234+00:00\r\n\r\n")), say(chunk(chat_text("r"))),
           say(chunk(kStop) + chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation openai_responses() {
  auto event = [](std::string_view type, std::string_view more) {
    return anthropic_event(type, join({R"({"type":")", type, R"(","sequence_number":1)", more, "}"}));
  };
  const std::string response =
      R"(,"response":{"id":"resp_6f","object":"response","created_at":1,"status":"in_progress",)"
      R"("error":null,"incomplete_details":null,"model":"gpt-oss-20b","output":[],)"
      R"("text":{"format":{"type":"text"}},"usage":null,"metadata":{}})";
  const std::string done =
      R"(,"response":{"id":"resp_6f","object":"response","status":"completed","error":null,"model":"gpt-oss-20b","output":)"
      R"([{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hello there","annotations":[]}]}],)"
      R"("usage":{"input_tokens":31,"input_tokens_details":{"cached_tokens":0},"output_tokens":17,)"
      R"("output_tokens_details":{"reasoning_tokens":9},"total_tokens":48}})";
  return {"openai_responses",
          {ask(post("/v1/responses")), say(uvicorn_head()),
           say(chunk(event("response.created", response)) + chunk(event("response.in_progress", response))),
           say(chunk(event("response.reasoning_text.delta", R"(,"item_id":"rs_1","output_index":0,"delta":"Hm")"))),
           say(chunk(event("response.reasoning_text.done", R"(,"item_id":"rs_1","text":"Hm")"))),
           say(chunk(event("response.output_item.added", R"(,"item":{"id":"msg_1","type":"message","content":[]})"))),
           say(chunk(event("response.output_text.delta", R"(,"item_id":"msg_1","content_index":0,"delta":"Hello")"))),
           say(chunk(event("response.output_text.delta", R"(,"item_id":"msg_1","content_index":0,"delta":" there")"))),
           say(chunk(event("response.output_text.done", R"(,"item_id":"msg_1","text":"Hello there")"))),
           say(chunk(event("response.function_call_arguments.delta", R"(,"item_id":"fc_1","delta":"{\"a\":")"))),
           say(chunk(event("response.content_part.done", R"(,"part":{"type":"output_text","text":"Hello there"})"))),
           say(chunk(event("response.completed", done)) + std::string(kLastChunk)), acknowledged()}};
}

Conversation openai_responses_failed() {
  return {
      "openai_responses_failed",
      {ask(post("/v1/responses")), say(uvicorn_head()),
       say(chunk(anthropic_event("response.output_text.delta",
                                 R"({"type":"response.output_text.delta","item_id":"m","delta":"H"})"))),
       say(chunk(anthropic_event(
               "response.failed",
               R"({"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error"}}})")) +
           std::string(kLastChunk)),
       acknowledged()}};
}

Conversation openai_json() {
  return {
      "openai_json",
      {ask(post("/v1/chat/completions", R"({"messages":[]})")),
       say(with_length(
           200, "application/json",
           R"({"id":"chatcmpl-plain","object":"chat.completion","created":1,"model":"mistral-7b","choices":[{"index":0,)"
           R"("message":{"role":"assistant","reasoning_content":null,"content":"All of it at once, with a \"quote\".",)"
           R"("tool_calls":[]},"logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
           R"("usage":{"prompt_tokens":19,"total_tokens":27,"completion_tokens":8,"prompt_tokens_details":null}})")),
       acknowledged()}};
}

Conversation openrouter_reasoning() {
  return {"openrouter_reasoning",
          {ask(post("/v1/chat/completions")),
           say(head(200, "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n")),
           say(chunk(": OPENROUTER PROCESSING\n\n")),
           say(chunk(chat_delta(R"({"role":"assistant","content":"","reasoning":"First,"})"))),
           say(chunk(chat_delta(R"({"role":"assistant","content":"yes","reasoning":null})"))),
           say(chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation sglang_cumulative() {
  Conversation c{"sglang_cumulative", {ask(post("/generate", R"({"text":"x","stream":true})")), say(uvicorn_head())}};
  std::string text;
  for (int i = 1; i <= 40; i++) {
    text += " token" + std::to_string(i) + "\\n";
    c.turns.push_back(say(chunk(
        sse(join({R"({"text":")", text, R"(","meta_info":{"id":"5b1f","finish_reason":)",
                  i == 40 ? R"({"type":"length","length":40})" : "null", R"(,"prompt_tokens":7,"completion_tokens":)",
                  std::to_string(i), R"(,"cached_tokens":1,"e2e_latency":0.5}})"})))));
  }
  c.turns.push_back(say(chunk(kDone) + std::string(kLastChunk)));
  c.turns.push_back(acknowledged());
  return c;
}

Conversation tgi_generate_stream() {
  auto token = [](std::string_view text, std::string_view generated, std::string_view details) {
    return join({R"(data:{"index":1,"token":{"id":5299,"text":")", text,
                 R"(","logprob":-0.0123,"special":false},"generated_text":)", generated, R"(,"details":)", details,
                 "}\n\n"});
  };
  return {
      "tgi_generate_stream",
      {ask(post("/generate_stream", R"({"inputs":"x"})")),
       say(head(200,
                "content-type: text/event-stream\r\nx-compute-type: 1-nvidia-h100\r\nx-accel-buffering: no\r\n"
                "transfer-encoding: chunked\r\n")),
       say(chunk(token(" Deep", "null", "null"))), say(chunk(":\n\n")), say(chunk(token(" learning", "null", "null"))),
       say(chunk(token(" is", R"(" Deep learning is")",
                       R"({"finish_reason":"length","generated_tokens":3,"seed":null,"input_length":4})")) +
           std::string(kLastChunk)),
       acknowledged()}};
}

Conversation tgi_chat() {
  return {
      "tgi_chat",
      {ask(post("/v1/chat/completions")),
       say(head(200, "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n")),
       say(chunk(
           "data: "
           "{\"object\":\"chat.completion.chunk\",\"id\":\"\",\"created\":1,\"model\":\"tgi\",\"choices\":[{\"delta\":"
           "{\"role\":\"assistant\",\"content\":\"A\"},\"finish_reason\":null}]}\n\n")),
       say(chunk(
           "data: "
           "{\"object\":\"chat.completion.chunk\",\"id\":\"\",\"created\":1,\"model\":\"tgi\",\"choices\":[{\"delta\":"
           "{\"role\":\"assistant\",\"content\":\"B\"},\"finish_reason\":\"length\"}]}\n\n")),
       say(chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation tgi_error() {
  return {"tgi_error",
          {ask(post("/generate_stream", R"({"inputs":"x"})")),
           say(head(200, "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n")),
           say(chunk("data:{\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}\n\n") +
               std::string(kLastChunk)),
           acknowledged()}};
}

Conversation ollama_chat() {
  auto object = [](std::string_view text) {
    return join(
        {R"({"model":"llama3.2:1b","created_at":"2026-08-21T10:00:00.1Z","message":{"role":"assistant","content":")",
         text, "\"},\"done\":false}\n"});
  };
  return {"ollama_chat",
          {ask(post("/api/chat", R"({"model":"llama3.2:1b","messages":[]})")),
           say(head(200, join({kNdjson, "Date: Fri, 21 Aug 2026 10:00:00 GMT\r\n"})) + chunk(object("Why"))),
           say(chunk(object(" not"))), say(chunk(object("?"))),
           say(chunk(
               "{\"model\":\"llama3.2:1b\",\"created_at\":\"2026-08-21T10:00:01Z\",\"message\":{\"role\":\"assistant\","
               "\"content\":\"\"},\"done_reason\":\"stop\",\"done\":true,\"total_duration\":4883583458,"
               "\"load_duration\":1334875,\"prompt_eval_count\":26,\"prompt_eval_duration\":342546000,"
               "\"eval_count\":282,\"eval_duration\":4535599000}\n")),
           say(std::string(kLastChunk)), acknowledged()}};
}

Conversation ollama_generate_thinking() {
  auto object = [](std::string_view members) {
    return join({R"({"model":"qwen3","created_at":"2026-08-21T10:00:00Z",)", members, "}\n"});
  };
  return {
      "ollama_generate_thinking",
      {ask(post("/api/generate", R"({"model":"qwen3","prompt":"x"})")),
       say(head(200, kNdjson) + chunk(object(R"("response":"","thinking":"Well","done":false)"))),
       say(chunk(object(R"("response":"","thinking":",","done":false)"))),
       say(chunk(object(R"("response":"Yes","done":false)"))),
       say(chunk(object(
               R"("response":"","done":true,"done_reason":"length","context":[1,2,3],"total_duration":9,)"
               R"("load_duration":5,"prompt_eval_count":4,"prompt_eval_duration":3,"eval_count":2,"eval_duration":1)")) +
           std::string(kLastChunk)),
       acknowledged()}};
}

Conversation ollama_generate_error() {
  return {"ollama_generate_error",
          {ask(post("/api/generate", R"({"model":"m","prompt":"x"})")),
           say(head(200, kNdjson) + chunk("{\"model\":\"m\",\"response\":\"a\",\"done\":false}\n")),
           say(chunk("{\"error\":\"an error was encountered while running the model\"}\n") + std::string(kLastChunk)),
           acknowledged()}};
}

Conversation ollama_json() {
  return {
      "ollama_json",
      {ask(post("/api/generate", R"({"model":"m","stream":false})")),
       say(with_length(200, "application/json; charset=utf-8",
                       R"({"model":"m","created_at":"2026","response":"It is blue.","done":true,"done_reason":"stop",)"
                       R"("total_duration":5043500667,"load_duration":5025959,"prompt_eval_count":30,)"
                       R"("prompt_eval_duration":325953000,"eval_count":290,"eval_duration":4709213000})")),
       acknowledged()}};
}

Conversation llama_cpp_native() {
  auto token = [](std::string_view text) {
    return sse(join({R"({"index":0,"content":")", text,
                     R"(","tokens":[5],"stop":false,"id_slot":-1,"tokens_predicted":1,)", R"("tokens_evaluated":9})"}));
  };
  return {
      "llama_cpp_native",
      {ask(post("/completion", R"({"prompt":"x","stream":true})")),
       say("HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nTransfer-Encoding: chunked\r\nContent-Type: "
           "text/event-stream\r\nKeep-Alive: timeout=5, max=100\r\nX-Accel-Buffering: no\r\n\r\n"),
       say(chunk(token(" the"))), say(chunk(token(" end"))),
       say(chunk(sse(
           R"({"index":0,"content":"","tokens":[],"id_slot":0,"stop":true,"model":"tiny.gguf","tokens_predicted":2,)"
           R"("tokens_evaluated":9,"generation_settings":{"n_predict":2,"stop":[],"stream":true},"prompt":"x",)"
           R"("has_new_line":false,"truncated":false,"stop_type":"limit","stopping_word":"","tokens_cached":10,)"
           R"("timings":{"prompt_n":9,"prompt_ms":41.206,"prompt_per_token_ms":4.5784,"prompt_per_second":218.4,)"
           R"("predicted_n":2,"predicted_ms":7.125,"predicted_per_token_ms":3.5625,"predicted_per_second":280.7}})"))),
       say(std::string(kLastChunk)), acknowledged()}};
}

Conversation llama_cpp_chat_timings() {
  return {"llama_cpp_chat_timings",
          {ask(post("/v1/chat/completions")),
           say(head(200, "Server: llama.cpp\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n")),
           say(chunk(chat_delta(R"({"role":"assistant","content":null})"))), say(chunk(chat_text("x"))),
           say(chunk(chat_delta("{}", R"("stop")",
                                R"(,"timings":{"cache_n":3,"prompt_n":6,"prompt_ms":10,"prompt_per_token_ms":1.6,)"
                                R"("predicted_n":31,"predicted_ms":100.5})"))),
           say(chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation anthropic_messages() {
  return {
      "anthropic_messages",
      {ask(post("/v1/messages")), say(uvicorn_head()),
       say(chunk(anthropic_event(
           "message_start",
           R"({"type":"message_start","message":{"id":"msg_013Zva","type":"message","role":"assistant","content":[],)"
           R"("model":"claude-sonnet-4","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,)"
           R"("cache_creation_input_tokens":7,"cache_read_input_tokens":0,"output_tokens":1}}})"))),
       say(chunk(anthropic_event(
           "content_block_start",
           R"({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}})"))),
       say(chunk(anthropic_event("ping", R"({"type": "ping"})"))),
       say(chunk(anthropic_event(
           "content_block_delta",
           R"({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}})"))),
       say(chunk(anthropic_event(
           "content_block_delta",
           R"({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCg"}})"))),
       say(chunk(anthropic_event("content_block_stop", R"({"type":"content_block_stop","index":0})"))),
       say(chunk(
           anthropic_event("content_block_start",
                           R"({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})"))),
       say(chunk(anthropic_event(
           "content_block_delta",
           R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}})"))),
       say(chunk(
           anthropic_event("content_block_delta",
                           R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"!"}})"))),
       say(chunk(anthropic_event(
           "content_block_start",
           R"({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"w","input":{}}})"))),
       say(chunk(anthropic_event(
           "content_block_delta",
           R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}})"))),
       say(chunk(anthropic_event("message_delta",
                                 R"({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},)"
                                 R"("usage":{"output_tokens":89}})"))),
       say(chunk(anthropic_event("message_stop", R"({"type":"message_stop"})")) + std::string(kLastChunk)),
       acknowledged()}};
}

Conversation anthropic_error() {
  return {
      "anthropic_error",
      {ask(post("/v1/messages")), say(uvicorn_head()),
       say(chunk(anthropic_event("content_block_delta",
                                 R"({"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello"}})"))),
       say(chunk(anthropic_event(
               "error", R"({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})")) +
           std::string(kLastChunk)),
       acknowledged()}};
}

Conversation anthropic_json() {
  return {"anthropic_json",
          {ask(post("/v1/messages")),
           say(with_length(
               200, "application/json",
               R"({"id":"msg_01X","type":"message","role":"assistant","model":"claude-haiku","content":[{"type":)"
               R"("text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":2095,)"
               R"("output_tokens":503}})")),
           acknowledged()}};
}

Conversation triton_generate_stream() {
  return {
      "triton_generate_stream",
      {ask(post("/v2/models/ensemble/generate_stream", R"({"text_input":"x"})")),
       say(head(200, "Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n")),
       say(chunk(sse(R"({"model_name":"ensemble","model_version":"1","sequence_end":false,"text_output":"Hi"})"))),
       say(chunk(sse(R"({"model_name":"ensemble","model_version":"1","sequence_end":false,"text_output":" you"})"))),
       say(std::string(kLastChunk)), acknowledged()}};
}

Conversation node_four_iovecs() {
  Conversation c{"node_four_iovecs", {ask(post("/v1/chat/completions"))}};
  const std::string first =
      sse(R"({"id":"n1","model":"tiny","choices":[{"delta":{"role":"assistant","content":""}}]})");
  c.turns.push_back(
      say(head(200, "Content-Type: text/event-stream\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n") +
          chunk(first)));
  for (const char* text : {"a", "b", "c"}) {
    const std::string event =
        sse(join({R"({"id":"n1","model":"tiny","choices":[{"delta":{"content":")", text, R"("}}]})"}));
    char size[16];
    std::snprintf(size, sizeof(size), "%zx", event.size());
    for (const std::string& part : {std::string(size), std::string("\r\n"), event, std::string("\r\n")})
      c.turns.push_back(say(part));
  }
  c.turns.push_back(say(chunk(kDone)));
  c.turns.push_back(say(std::string(kLastChunk)));
  c.turns.push_back(acknowledged());
  return c;
}

Conversation crlf_events() {
  return {
      "crlf_events",
      {ask(post("/v1/chat/completions")), say(uvicorn_head()),
       say(chunk(
           "event: message\r\nid: 1\r\nretry: 3000\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n")),
       say(chunk("data:{\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\r\n\r\ndata:{\"choices\":[{\"delta\":{"
                 "\"content\":\"c\"}}]}\r\n\r\n")),
       say(chunk("data:[DONE]\r\n\r\n") + std::string(kLastChunk)), acknowledged()}};
}

Conversation hostile_text() {
  // What a model may say: the agent's own keys and markers, escaped as JSON demands.
  return {"hostile_text",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole)),
           say(chunk(chat_text(R"(\"content\":\"x\",\"model\":\"fake\",\"finish_reason\":\"fake\")"))),
           say(chunk(chat_text(R"(data: [DONE]\n\ndata: {\"done\":true}\n\n)"))), say(chunk(chat_text(R"([DONE])"))),
           say(chunk(chat_text(R"(\\\":\"usage\":{\"completion_tokens\":99999})"))), say(chunk(chat_text(R"(:)"))),
           say(chunk(chat_text(R"(\":)"))),
           say(chunk(chat_text(R"({\"error\":{\"message\":\"no\"}},\"type\":\"message_stop\",\"stop\":true)"))),
           say(chunk(chat_text(R"(\r\n0\r\n\r\nHTTP/1.1 500 Oops\r\n)"))),
           say(chunk(chat_text(R"(\u0022type\u0022:\u0022error\u0022 \"id\":\"x\" \"generated_text\":\"y\")"))),
           say(chunk(kStop) + chunk(chat_usage(3, 8)) + chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation multi_line_data() {
  return {"multi_line_data",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()),
           say(chunk("data: {\"id\":\"ml\",\ndata: \"model\":\"m\",\ndata: \"choices\":[{\"delta\":\ndata: "
                     "{\"content\":\"a\"}}]}\n\n")),
           say(chunk(": note\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n")),
           say(chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation long_events() {
  // Log-probabilities make one event larger than a window; the last bytes of it hold what matters.
  std::string logprobs;
  for (int i = 0; i < 120; i++)
    logprobs += join({i ? "," : "", R"({"token":"t","logprob":-0.5,"bytes":[116],"top_logprobs":[]})"});
  auto event = [&](std::string_view text, std::string_view finish) {
    return sse(join({R"({"id":"long-1","model":"m","choices":[{"index":0,"logprobs":{"x":[)", logprobs,
                     R"(]},"delta":{"content":")", text, R"("},"finish_reason":)", finish, "}]}"}));
  };
  return {"long_events",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(event("one", "null"))),
           say(chunk(event("", "null"))), say(chunk(event("two", R"("length")"))),
           say(chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation chunks_of_one_shape() {
  // What a parser that knows a stream's looks may be tempted to take for more of the same.
  Conversation c{"chunks_of_one_shape", {ask(post("/v1/chat/completions")), say(uvicorn_head())}};
  const std::string end = "\"}}]}\n\n",
                    front = "data: {\"id\":\"s\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{";
  const std::string text = front + "\"content\":\"";
  std::string stream;
  const auto add = [&](const std::string& event) { stream += chunk(event); };
  for (int i = 0; i < 8; i++) add(text + "token " + std::to_string(i) + end);
  for (const char* said : {"a", "a long one with spaces", "\\\"quoted\\\"", "back\\\\", "\\\\\\\"", "", ":", "{}",
                           "\\n\\n", "data: [DONE]"})
    add(text + said + end);
  add(": comment\n\n" + text + "x" + end);  // more than one event in an HTTP chunk
  add(text + "x" + end + text + "y" + end);
  add(text + "x" + end + "\n");
  add(text + "x\"},\"finish_reason\":\"stop" + end);  // another member after the text
  add(text + "x\"}}],\"usage\":{\"completion_tokens\":77}}\n\n");
  add(front + "\"reasoning_content\":\"x" + end);
  add(front + "\"role\":\"assistant\",\"content\":\"" + end);
  add(text + "x" + end.substr(0, end.size() - 1));  // its blank line comes in the next HTTP chunk
  add("\n");
  add("data: {\"error\":{\"message\":\"x" + end);
  for (int i = 0; i < 4; i++) add(text + std::string(static_cast<std::size_t>(i) * 500 + 1, 'w') + end);
  c.turns.push_back(say(stream + chunk(kDone) + std::string(kLastChunk)));
  c.turns.push_back(acknowledged());
  return c;
}

// ---- HTTP shapes ----

Conversation stream_until_close() {
  return {"stream_until_close",
          {ask(post("/v1/chat/completions")),
           say("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"),
           say(kRole + chat_text("a")), say(chat_text("b")), say(kStop + kDone)},
          Ending::kServerFin};
}

Conversation ndjson_until_close_without_newline() {
  return {
      "ndjson_until_close_without_newline",
      {ask(post("/api/chat")), say("HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"),
       say("{\"model\":\"m\",\"message\":{\"content\":\"a\"},\"done\":false}\n"),
       say("{\"model\":\"m\",\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":3,\"eval_count\":1}")},
      Ending::kServerFin};
}

Conversation json_until_close() {
  return {"json_until_close",
          {ask(post("/v1/chat/completions", "{}")),
           say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"),
           say(R"({"id":"j","model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],)"
               R"("usage":{"prompt_tokens":2,"completion_tokens":1}})")},
          Ending::kServerFin};
}

Conversation keep_alive_three_requests() {
  return {
      "keep_alive_three_requests",
      {ask(post("/v1/chat/completions")), say(openai_stream(3, "a", "m1")), acknowledged(),
       ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
       acknowledged(), ask(post("/v1/chat/completions?trace=1")), say(openai_stream(5, "b", "m2")), acknowledged()}};
}

Conversation pipelined_three_requests() {
  return {"pipelined_three_requests",
          {ask(post("/v1/chat/completions") + post("/api/chat") + "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
           say(openai_stream(2, "a", "m1") + head(200, kNdjson) +
               chunk("{\"model\":\"m2\",\"message\":{\"content\":\"x\"},\"done\":false}\n{\"model\":\"m2\",\"done\":"
                     "true,\"eval_count\":1}\n") +
               std::string(kLastChunk) + with_length(200, "text/plain", "metric 1\n")),
           acknowledged()}};
}

Conversation expect_continue() {
  const std::string body = R"({"stream":true})";
  return {"expect_continue",
          {ask("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n"),
           say("HTTP/1.1 100 Continue\r\n\r\n"), ask(body), say(openai_stream(2)), acknowledged()}};
}

Conversation expect_refused() {
  return {
      "expect_refused",
      {ask("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"),
       say("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")},
      Ending::kServerFin};
}

Conversation early_hints() {
  return {"early_hints",
          {ask(post("/v1/chat/completions")), say("HTTP/1.1 102 Processing\r\n\r\n"),
           say("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nContent-Type: text/event-stream\r\n\r\n"),
           say(openai_stream(1)), acknowledged()}};
}

Conversation head_request() {
  return {"head_request",
          {ask("HEAD /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n"),
           say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n"), acknowledged(),
           ask(post("/v1/chat/completions")), say(openai_stream(1)), acknowledged()}};
}

Conversation no_content_and_not_modified() {
  return {"no_content_and_not_modified",
          {ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n"),
           say("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"), acknowledged(),
           ask("GET /v1/models HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"a\"\r\n\r\n"),
           say("HTTP/1.1 304 Not Modified\r\nContent-Length: 812\r\n\r\n"), acknowledged(),
           ask(post("/v1/chat/completions")), say(openai_stream(1)), acknowledged()}};
}

Conversation big_heads() {
  const std::string cookie = "Cookie: session=" + std::string(12'000, 'c') + "\r\n";
  std::string many;
  for (int i = 0; i < 60; i++) many += "X-Header-" + std::to_string(i) + ": " + std::string(60, 'v') + "\r\n";
  return {"big_heads",
          {ask(post("/v1/chat/completions", "{}", cookie + many)),
           say(head(200, "Set-Cookie: a=" + std::string(3'000, 'x') + "\r\n" + many + std::string(kSse) +
                             "X-Last: " + std::string(2'000, 'z') + "\r\n")),
           say(chunk(chat_text("a")) + chunk(kDone) + std::string(kLastChunk)), acknowledged()}};
}

Conversation big_upload() {
  return {"big_upload",
          {ask(post("/v1/chat/completions", R"({"image":")" + std::string(200'000, 'A') + R"(","stream":true})")),
           say(openai_stream(2)), acknowledged()}};
}

Conversation chunked_upload() {
  return {"chunked_upload",
          {ask("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ntransfer-encoding: Chunked\r\n\r\n" +
               chunked({R"({"messages":[{"content":")", std::string(5'000, 'q'), R"("}]})"}) + std::string(kLastChunk)),
           say(openai_stream(2)), acknowledged(), ask(post("/v1/chat/completions")), say(openai_stream(1)),
           acknowledged()}};
}

Conversation early_413() {
  return {"early_413",
          {ask("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" +
               std::string(3'000, 'a')),
           say("HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: "
               "close\r\n\r\n{}"),
           ask(std::string(2'000, 'a'))},
          Ending::kServerFin};
}

Conversation chunk_extensions_and_trailers() {
  auto extended = [](std::string_view part) {
    char size[64];
    std::snprintf(size, sizeof(size), "%04zX;ext=\"0a\";b\r\n", part.size());
    return join({size, part, "\r\n"});
  };
  return {"chunk_extensions_and_trailers",
          {ask(post("/v1/chat/completions")), say(head(200, join({kSse, "Trailer: X-Sum, Server-Timing\r\n"}))),
           say(extended(chat_text("a"))), say(extended(chat_text("b")) + extended(kDone)),
           say("0000;last\r\nX-Sum: 0\r\nServer-Timing: total;dur=1\r\n\r\n"), acknowledged(),
           ask(post("/v1/chat/completions")), say(openai_stream(1)), acknowledged()}};
}

Conversation gzip_stream() {
  std::string noise;
  for (int i = 0; i < 600; i++) noise += static_cast<char>((i * 7919) % 251);
  return {"gzip_stream",
          {ask(post("/v1/chat/completions")), say(head(200, join({kSse, "Content-Encoding: gzip\r\n"}))),
           say(chunk(noise.substr(0, 40))), say(chunk(noise.substr(40, 60))), say(chunk(noise.substr(100))),
           say(std::string(kLastChunk)), acknowledged()}};
}

Conversation websocket_upgrade() {
  return {
      "websocket_upgrade",
      {ask("GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
       say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
       ask("\x81\x85GET / HTTP/1.1\r\n\r\n"), say("\x81\x7eHTTP/1.1 200 OK\r\n\r\n"), ask("POST / HTTP/1.1\r\n\r\n")},
      Ending::kClientFin};
}

Conversation truncated_clean() {
  return {"truncated_clean",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("a"))),
           say(std::string(kLastChunk)), acknowledged()}};
}

Conversation truncated_abrupt() {
  return {"truncated_abrupt",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("a"))),
           say("1f3\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"b")},
          Ending::kServerFin};
}

Conversation client_abort() {
  return {"client_abort",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("a"))),
           acknowledged()},
          Ending::kClientFin};
}

Conversation client_reset_mid_stream() {
  return {"client_reset_mid_stream",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("a"))),
           acknowledged()},
          Ending::kClientReset};
}

Conversation server_reset_mid_stream() {
  return {"server_reset_mid_stream",
          {ask(post("/v1/chat/completions")), say(uvicorn_head()), say(chunk(kRole) + chunk(chat_text("a"))),
           acknowledged()},
          Ending::kServerReset};
}

Conversation no_response() { return {"no_response", {ask(post("/v1/chat/completions"))}, Ending::kServerFin}; }

Conversation reset_before_response() {
  return {"reset_before_response", {ask(post("/v1/chat/completions"))}, Ending::kServerReset};
}

Conversation embeddings() {
  std::string vector = "0.1";
  for (int i = 0; i < 1'000; i++) vector += ",-0.0123456";
  return {"embeddings",
          {ask(post("/v1/embeddings", R"({"input":"x"})")),
           say(head(200, "content-type: application/json\r\ntransfer-encoding: chunked\r\n") +
               chunk(join({R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[)", vector,
                           R"(]}],"model":"bge-m3","usage":{"prompt_tokens":5,"total_tokens":5}})"})) +
               std::string(kLastChunk)),
           acknowledged()}};
}

std::vector<Conversation> all_conversations() {
  return {vllm_chat(),
          vllm_chat_continuous_usage(),
          vllm_completions(),
          vllm_reasoning(),
          vllm_tool_calls(),
          vllm_error_then_done(),
          vllm_per_request_metrics(),
          vllm_keep_alive_comments(),
          openai_responses(),
          openai_responses_failed(),
          openai_json(),
          openrouter_reasoning(),
          sglang_cumulative(),
          tgi_generate_stream(),
          tgi_chat(),
          tgi_error(),
          ollama_chat(),
          ollama_generate_thinking(),
          ollama_generate_error(),
          ollama_json(),
          llama_cpp_native(),
          llama_cpp_chat_timings(),
          anthropic_messages(),
          anthropic_error(),
          anthropic_json(),
          triton_generate_stream(),
          node_four_iovecs(),
          crlf_events(),
          hostile_text(),
          multi_line_data(),
          long_events(),
          chunks_of_one_shape(),
          stream_until_close(),
          ndjson_until_close_without_newline(),
          json_until_close(),
          keep_alive_three_requests(),
          pipelined_three_requests(),
          expect_continue(),
          expect_refused(),
          early_hints(),
          head_request(),
          no_content_and_not_modified(),
          big_heads(),
          big_upload(),
          chunked_upload(),
          early_413(),
          chunk_extensions_and_trailers(),
          gzip_stream(),
          websocket_upgrade(),
          truncated_clean(),
          truncated_abrupt(),
          client_abort(),
          client_reset_mid_stream(),
          server_reset_mid_stream(),
          no_response(),
          reset_before_response(),
          embeddings()};
}

std::vector<iw_record> play(const Conversation& conversation, Role role, Pieces pieces) {
  Connection connection(role);
  connection.pieces = std::move(pieces);
  for (const auto& turn : conversation.turns) {
    connection.wait(kMillisecond);
    switch (turn.what) {
      case What::kRequest:
        connection.request(turn.bytes);
        break;
      case What::kResponse:
        connection.response(turn.bytes);
        break;
      case What::kAcknowledged:
        connection.acknowledge();
        break;
    }
  }
  connection.wait(kMillisecond);
  switch (conversation.ending) {
    case Ending::kKeptOpen:
      break;
    case Ending::kServerFin:
      connection.server_fin();
      break;
    case Ending::kClientFin:
      connection.client_fin();
      break;
    case Ending::kServerReset:
      connection.server_reset();
      break;
    case Ending::kClientReset:
      connection.client_reset();
      break;
  }
  connection.wait(kMillisecond);
  connection.close();
  return connection.records;
}

iw_request only(const std::vector<iw_record>& records) {
  EXPECT_EQ(records.size(), 1u);
  return records.empty() ? iw_request{} : records.front().request;
}

std::string outcome_name(std::uint8_t outcome) {
  static const char* const names[] = {
      "none",         "complete", "error_in_stream",   "truncated_clean", "truncated_abrupt",
      "client_abort", "reset",    "reset_stale_reuse", "no_response"};
  return outcome < std::size(names) ? names[outcome] : "?";
}

std::string summary(const std::vector<iw_record>& records) {
  std::ostringstream out;
  for (const auto& record : records) {
    const iw_request& r = record.request;
    const auto flags = r.head.flags & ~(IW_REQ_LATE_ACKS | IW_REQ_MARKS_MERGED | IW_REQ_HANDED_HOOK);
    out << "#" << r.head.ordinal << " method " << int{r.head.method} << " route " << int{r.head.route} << " sent "
        << r.head.body_bytes << " trace " << printable(r.head.trace_id, sizeof(r.head.trace_id)) << " code " << r.code
        << " " << outcome_name(r.outcome) << " format " << int{r.format} << " encoding " << int{r.encoding}
        << " stream " << int{r.stream} << " body " << r.response_body_bytes << " chunks " << r.chunks << " reasoning "
        << r.chunks_reasoning << " tool " << r.chunks_tool << " comments " << r.comments << " events " << r.events
        << " in " << r.tokens_input << " out " << r.tokens_output << " queue " << r.queue_ns << " prefill "
        << r.prefill_ns << " load " << r.load_ns << " model '" << printable(r.model, sizeof(r.model)) << "' id '"
        << printable(r.response_id, sizeof(r.response_id)) << "' finish '"
        << printable(r.finish_reason, sizeof(r.finish_reason)) << "' flags " << std::hex << flags << std::dec
        << " request end " << r.head.end_seq << " response end " << r.end_seq << " first content "
        << (r.encoding ? 0 : r.first_content_seq) << " head " << r.response_seq << "\n";
  }
  return out.str();
}

}  // namespace inferwire::stream_test
