// SPDX-License-Identifier: Apache-2.0
#include "agent/capture/hooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace inferwire::capture {
namespace {

std::size_t index_of(std::string_view program) {
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (kHooks[i].program == program) return i;
  }
  ADD_FAILURE() << "no program " << program;
  return 0;
}

SignalState signal_of(const HookStates& states, std::string_view signal) {
  for (SignalState& state : signal_states(states)) {
    if (state.signal == signal) return state;
  }
  ADD_FAILURE() << "no signal " << signal;
  return {};
}

TEST(HookTable, EveryRowIsNamedAfterItsRungAndSaysWhatIsLostWithoutIt) {
  std::set<std::string_view> programs;
  for (const Hook& hook : kHooks) {
    EXPECT_TRUE(programs.insert(hook.program).second) << hook.program;
    EXPECT_NE(hook.program.find("__"), std::string_view::npos) << hook.program;
    EXPECT_TRUE(hook.rung.starts_with(hook.program.substr(0, hook.program.find("__")))) << hook.program;
    for (std::string_view text : {hook.gives, hook.without, hook.mend}) EXPECT_FALSE(text.empty());
  }
}

TEST(HookTable, RungsOfAHookStandTogetherAndServeOneSignal) {
  for (std::size_t i = 1; i < kHooks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (kHooks[j].hook != kHooks[i].hook) continue;
      EXPECT_EQ(kHooks[i - 1].hook, kHooks[i].hook);
      EXPECT_EQ(kHooks[j].signal, kHooks[i].signal);
      EXPECT_EQ(kHooks[j].required, kHooks[i].required);
    }
  }
}

TEST(HookChoice, EverySignalIsUpAtFirst) {
  for (const SignalState& signal : signal_states(initial_states({}))) EXPECT_TRUE(signal.up) << signal.signal;
}

TEST(HookChoice, TheFirstUsableRungOfAHookIsChosen) {
  const std::size_t map = index_of("iter__sockets"), files = index_of("iter__task_file");
  HookStates states = initial_states({});
  EXPECT_TRUE(states[map].chosen);
  EXPECT_FALSE(states[files].chosen);

  states[map].unusable = "Operation not permitted";
  choose(states);
  EXPECT_FALSE(states[map].chosen);
  EXPECT_TRUE(states[files].chosen);
  EXPECT_TRUE(signal_of(states, "open_requests").up);
}

TEST(HookChoice, AFailingProgramCostsItsOwnSignalOnly) {
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    HookStates states = initial_states({});
    for (std::size_t j = 0; j < kHooks.size(); ++j) {
      if (kHooks[j].hook == kHooks[i].hook) states[j].unusable = "invalid argument";
    }
    choose(states);
    for (const SignalState& signal : signal_states(states)) {
      EXPECT_EQ(signal.up, signal.signal != kHooks[i].signal) << kHooks[i].program << " " << signal.signal;
      if (!signal.up) {
        EXPECT_NE(signal.reason.find("invalid argument"), std::string::npos) << signal.reason;
      }
    }
  }
}

TEST(HookDenial, OneWordIsBothAddressFamiliesOrOne) {
  HookStates states = initial_states({"getpeername"});
  EXPECT_FALSE(states[index_of("cgroup__getpeername4")].chosen);
  EXPECT_FALSE(states[index_of("cgroup__getpeername6")].chosen);
  EXPECT_EQ(signal_of(states, "accept").reason, "cgroup__getpeername4: denied by configuration (getpeername)");

  states = initial_states({"getpeername6"});
  EXPECT_TRUE(states[index_of("cgroup__getpeername4")].chosen);
  EXPECT_FALSE(states[index_of("cgroup__getpeername6")].chosen);
}

TEST(HookDenial, AWordMayBeARungOrAProgram) {
  const HookStates rung = initial_states({"tp_btf"});
  for (std::size_t i = 0; i < kHooks.size(); ++i) {
    if (kHooks[i].rung == "tp_btf") {
      EXPECT_FALSE(rung[i].chosen) << kHooks[i].program;
    }
    if (kHooks[i].required) {
      EXPECT_TRUE(rung[i].chosen) << kHooks[i].program;
    }
  }
  EXPECT_FALSE(initial_states({"tp_btf__sock_send_length"})[index_of("tp_btf__sock_send_length")].chosen);
}

TEST(HookDenial, AWordThatMeansNothingIsFound) {
  EXPECT_EQ(unknown_deny_word({"getpeername", "kprobe"}), "kprobe");
  EXPECT_EQ(unknown_deny_word({"getpeername", "tp_btf", "open_requests"}), std::nullopt);
  EXPECT_EQ(unknown_deny_word(deny_words()), std::nullopt);
}

}  // namespace
}  // namespace inferwire::capture
