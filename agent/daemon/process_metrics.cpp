// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <sstream>

#include "agent/base/file.h"

namespace inferwire::daemon {
namespace {

using metrics::FamilyId;

struct DirCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};

// Less the entry of the walk itself.
double open_descriptors() {
  std::unique_ptr<DIR, DirCloser> folder(opendir("/proc/self/fd"));
  if (folder == nullptr) return 0;
  int entries = 0;
  while (const dirent* entry = readdir(folder.get())) entries += entry->d_name[0] != '.';
  return entries - 1;
}

double boot_unix_seconds() {
  auto text = base::read_text("/proc/stat");
  const std::size_t at = text ? text->find("btime ") : std::string::npos;
  return at == std::string::npos ? 0 : std::stod(text->substr(at + 6));
}

}  // namespace

void report_process(metrics::Registry& registry) {
  static const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const double page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  static const double boot = boot_unix_seconds();

  auto text = base::read_text("/proc/self/stat");
  if (!text) return;
  // The name in brackets may hold anything: fields count from the last bracket, which ends field 2 (proc_pid_stat(5)).
  std::istringstream fields(text->substr(text->rfind(')') + 1));
  std::string skipped;
  double user = 0, system = 0, threads = 0, start = 0, virtual_bytes = 0, resident_pages = 0;
  for (int field = 3; field <= 24 && fields; ++field) {
    switch (field) {
      case 14:
        fields >> user;
        break;
      case 15:
        fields >> system;
        break;
      case 20:
        fields >> threads;
        break;
      case 22:
        fields >> start;
        break;
      case 23:
        fields >> virtual_bytes;
        break;
      case 24:
        fields >> resident_pages;
        break;
      default:
        fields >> skipped;
    }
  }
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  registry.set(FamilyId::kProcessCpuSecondsTotal, {}, (user + system) / ticks);
  registry.set(FamilyId::kProcessThreads, {}, threads);
  registry.set(FamilyId::kProcessStartTimeSeconds, {}, boot + start / ticks);
  registry.set(FamilyId::kProcessVirtualMemoryBytes, {}, virtual_bytes);
  registry.set(FamilyId::kProcessResidentMemoryBytes, {}, resident_pages * page_bytes);
  registry.set(FamilyId::kProcessOpenFds, {}, open_descriptors());
  registry.set(FamilyId::kProcessMaxFds, {}, static_cast<double>(descriptors.rlim_cur));
}

}  // namespace inferwire::daemon
