// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/object_code.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <memory>

namespace inferwire::testing {

base::Result<ObjectCode> read_object(const std::string& path) {
  struct Close {
    void operator()(bpf_object* object) const { bpf_object__close(object); }
  };
  libbpf_set_print(nullptr);
  const std::unique_ptr<bpf_object, Close> object(bpf_object__open_file(path.c_str(), nullptr));
  if (!object) return base::fail("open the object", path, base::errno_text(errno), "build it");

  // With a generated loader libbpf does everything but the system calls: it links functions to their callers.
  LIBBPF_OPTS(gen_loader_opts, loader);
  int error = bpf_object__gen_loader(object.get(), &loader);
  if (error == 0) error = bpf_object__load(object.get());
  if (error != 0) return base::fail("link the programs", path, base::errno_text(-error), "");

  ObjectCode code;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object.get()) {
    const bpf_insn* first = bpf_program__insns(program);
    code.programs.push_back({bpf_program__name(program),
                             bpf_program__type(program),
                             bpf_program__expected_attach_type(program),
                             {first, first + bpf_program__insn_cnt(program)}});
  }
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object.get()) code.maps.push_back({bpf_map__name(map), bpf_map__type(map)});
  return code;
}

}  // namespace inferwire::testing
