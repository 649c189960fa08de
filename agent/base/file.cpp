// SPDX-License-Identifier: Apache-2.0
#include "agent/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "agent/base/handle.h"

namespace inferwire::base {

Result<std::string> read_text(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail("read", path, errno_text(errno), "");
  std::string text;
  char block[8192];
  for (;;) {
    const ssize_t got = read(fd.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail("read", path, errno_text(errno), "");
    if (got == 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

}  // namespace inferwire::base
