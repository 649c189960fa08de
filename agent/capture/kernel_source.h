// SPDX-License-Identifier: Apache-2.0
// Records of the running kernel. Used by one thread.
#pragma once

#include <chrono>
#include <memory>

#include "agent/capture/packet_programs.h"
#include "agent/capture/record_source.h"

namespace inferwire::capture {

class KernelSource final : public RecordSource {
 public:
  // Takes the loaded programs over.
  static base::Result<std::unique_ptr<KernelSource>> open(PacketPrograms programs);
  ~KernelSource() override;

  base::Result<void> drain(const RecordSink& sink) override;
  base::Result<void> read_open(const RecordSink& sink) override;
  base::Result<void> read_counts(const CountSink& sink) override;
  base::Result<void> read_tcp(const TcpSink& sink) override;
  base::Result<KernelStats> read_stats() override;
  std::vector<MapUse> map_use() override;
  std::vector<ProgramRun> program_runs() override;
  std::uint64_t malformed_records() const override { return malformed_; }

  // Attaches what serves followed connections only when there are some, and takes it off when there have been none for
  // `patience`. Cheap: to be called often.
  base::Result<void> follow(std::chrono::steady_clock::time_point now, std::chrono::nanoseconds patience);

  // No new records from here on; what is there can still be read.
  void stop() { programs_.detach(); }

  const HookStates& states() const { return programs_.states(); }

 private:
  struct Implementation;

  explicit KernelSource(PacketPrograms programs);
  static int on_sample(void* self, void* sample, unsigned long size);

  PacketPrograms programs_;
  std::unique_ptr<Implementation> implementation_;
  const RecordSink* sink_ = nullptr;  // during drain()
  std::uint64_t malformed_ = 0;
  std::chrono::steady_clock::time_point followed_at_{};  // when some connection was followed last
};

}  // namespace inferwire::capture
