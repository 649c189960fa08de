// SPDX-License-Identifier: Apache-2.0
// The programs of a BPF object as instructions: what would be handed to the kernel, with all functions that a program
// calls behind it, before relocation against any kernel. Needs no privilege and no kernel.
#pragma once

#include <linux/bpf.h>

#include <string>
#include <vector>

#include "agent/base/result.h"

namespace inferwire::testing {

struct ProgramCode {
  std::string name;
  bpf_prog_type type;
  bpf_attach_type attach_type;
  std::vector<bpf_insn> instructions;
};

struct MapKind {
  std::string name;
  bpf_map_type type;
};

struct ObjectCode {
  std::vector<ProgramCode> programs;
  std::vector<MapKind> maps;
};

base::Result<ObjectCode> read_object(const std::string& path);

}  // namespace inferwire::testing
