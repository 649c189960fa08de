// SPDX-License-Identifier: Apache-2.0
#include "tests/support/wire/tun.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <cstring>

#include "tests/support/base/fatal.h"

extern char** environ;

namespace inferwire::wire {
namespace {

void run(std::vector<std::string> words) {
  std::vector<char*> arguments;
  std::string line;
  for (auto& word : words) {
    arguments.push_back(word.data());
    line += word + " ";
  }
  arguments.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0 ||
      waitpid(child, &status, 0) != child) {
    rig::fatal_errno("running " + line);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) rig::fatal("failed: " + line);
}

void enter(const rig::Fd& network_namespace, const std::string& name) {
  if (setns(network_namespace.get(), CLONE_NEWNET) != 0) {
    rig::fatal_errno("entering the network namespace " + name);
  }
}

rig::Fd create_device(const std::string& name) {
  rig::Fd fd(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) rig::fatal_errno("opening /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd.get(), TUNSETIFF, &request) != 0) rig::fatal_errno("making the device " + name);
  return fd;
}

}  // namespace

rig::Fd open_tun(const TunEnd& end, const std::string& name, int mtu) {
  const rig::Fd home(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  const std::string path = "/run/netns/" + end.network_namespace;
  const rig::Fd target(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!home.valid() || !target.valid()) rig::fatal_errno("opening " + path);

  enter(target, end.network_namespace);
  rig::Fd fd = create_device(name);
  for (std::size_t i = 0; i < end.addresses.size(); ++i) {
    if (end.addresses[i].find(':') == std::string::npos) {
      run({"ip", "address", "add", end.addresses[i], "peer", end.peers[i], "dev", name});
    } else {
      run({"ip", "address", "add", end.addresses[i], "dev", name, "nodad"});
    }
  }
  run({"ip", "link", "set", name, "mtu", std::to_string(mtu), "txqueuelen", "10000", "up"});
  run({"ip", "link", "set", "lo", "up"});
  // An IPv6 `peer` address makes the route to ourselves, not to the peer.
  for (const auto& peer : end.peers) {
    if (peer.find(':') != std::string::npos) run({"ip", "route", "add", peer, "dev", name});
  }
  enter(home, "of the program itself");
  return fd;
}

}  // namespace inferwire::wire
