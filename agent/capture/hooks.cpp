// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/hooks.h"

#include <algorithm>

namespace inferwire::capture {
namespace {

// "getpeername" of "getpeername4" and "getpeername6".
std::string_view both_families(std::string_view hook) {
  if (hook.ends_with('4') || hook.ends_with('6')) hook.remove_suffix(1);
  return hook;
}

}  // namespace

std::vector<std::string_view> signals() {
  std::vector<std::string_view> names;
  for (const Hook& hook : kHooks) {
    if (hook.signal.empty()) continue;
    if (std::find(names.begin(), names.end(), hook.signal) == names.end()) names.push_back(hook.signal);
  }
  return names;
}

bool denies(std::string_view word, const Hook& hook) {
  return word == hook.program || word == hook.rung || word == hook.hook || word == both_families(hook.hook);
}

std::vector<std::string> deny_words() {
  std::vector<std::string> words;
  for (const Hook& hook : kHooks) {
    for (const std::string_view word : {both_families(hook.hook), hook.hook, hook.rung, hook.program}) {
      if (std::find(words.begin(), words.end(), word) == words.end()) words.emplace_back(word);
    }
  }
  return words;
}

std::optional<std::string> unknown_deny_word(const std::vector<std::string>& deny) {
  for (const std::string& word : deny) {
    if (std::none_of(kHooks.begin(), kHooks.end(), [&](const Hook& hook) { return denies(word, hook); })) return word;
  }
  return std::nullopt;
}

HookStates initial_states(const std::vector<std::string>& deny) {
  HookStates states;
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    for (const std::string& word : deny) {
      if (denies(word, kHooks[i])) states[i].unusable = "denied by configuration (" + word + ")";
    }
  }
  choose(states);
  return states;
}

void choose(HookStates& states) {
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    bool better = false;
    for (std::size_t j = 0; j < i; ++j) better |= states[j].chosen && kHooks[j].hook == kHooks[i].hook;
    states[i].chosen = !better && states[i].unusable.empty();
  }
}

std::vector<SignalState> signal_states(const HookStates& states) {
  std::vector<SignalState> result;
  for (std::string_view signal : signals()) {
    SignalState state{.signal = signal, .up = true, .reason = {}};
    for (std::size_t i = 0; i < kHooks.size(); ++i) {
      if (kHooks[i].signal != signal) continue;
      bool served = false;
      std::string reason;
      for (std::size_t j = 0; j < kHooks.size(); ++j) {
        if (kHooks[j].hook != kHooks[i].hook) continue;
        served |= states[j].chosen;
        if (!states[j].unusable.empty()) reason = states[j].unusable;
      }
      if (served || !state.up) continue;
      state.up = false;
      state.reason = std::string(kHooks[i].program) + ": " + reason;
    }
    result.push_back(std::move(state));
  }
  return result;
}

}  // namespace inferwire::capture
