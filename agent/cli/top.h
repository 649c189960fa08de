// SPDX-License-Identifier: Apache-2.0
// `inferwire top`: what a running agent sees now, from its unix socket.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "agent/base/result.h"
#include "agent/cli/show_text.h"

namespace inferwire::cli {

struct TopOptions {
  std::string socket_path = "/run/inferwire/agent.sock";
  bool once = false;  // else again every two seconds, until interrupted
  bool json = false;  // what the agent says, one JSON object a line
  When color = When::kAuto;
  bool ascii = false;
};

// Exit status: 0; 1 when the agent cannot be asked.
int top_main(const TopOptions& options);

// The agent's answer as a screen. Error: it is no such answer.
base::Result<std::string> render_top(std::string_view json, const Style& style);

// One line to the agent's socket ("top"), its answer without the line end.
base::Result<std::string> ask_agent(const std::string& socket_path, std::string_view request);

}  // namespace inferwire::cli
