// SPDX-License-Identifier: Apache-2.0
// What a program can do, found without running it: follows every path through it and its functions and keeps for each
// register and stack slot what it may hold. Like the kernel's verifier it need not understand conditions; where several
// things are possible all of them count, so nothing that can happen is missing.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace inferwire::testing {

struct CodeFacts {
  std::set<std::uint32_t> helpers;          // BPF_FUNC_* that are called somewhere
  std::set<std::size_t> kernel_functions;   // instructions that call a function of the kernel that is no helper
  std::set<std::size_t> context_writes;     // instructions that may write to the program's context
  std::set<std::int64_t> results;           // constants that the program may return
  bool returns_other = false;               // it may return something that is no constant
  std::vector<std::string> not_understood;  // must be empty
};

CodeFacts facts_of(std::span<const bpf_insn> instructions);

}  // namespace inferwire::testing
