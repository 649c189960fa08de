// SPDX-License-Identifier: Apache-2.0
#include "exporters/jsonl/record_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace inferwire::jsonl {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class RecordWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "inferwire-jsonl-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(std::string_view name) const { return (folder_ / name).string(); }

  static std::string text_of(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  static std::unique_ptr<RecordWriter> open(const std::string& file, std::size_t queue_bytes_max = 1 << 20) {
    auto writer = RecordWriter::open({file, queue_bytes_max});
    EXPECT_TRUE(writer.has_value()) << writer.error().to_string();
    return writer ? std::move(*writer) : nullptr;
  }

  static void wait_for_written(const RecordWriter& writer, std::uint64_t count) {
    for (int round = 0; round < 2000 && writer.written() < count; ++round) ::usleep(5000);
    ASSERT_GE(writer.written(), count);
  }

  fs::path folder_;
};

TEST_F(RecordWriterTest, LinesComeOutInOrder) {
  const auto writer = open(path("records"));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(writer->write("{\"n\":" + std::to_string(i) + "}"));
  writer->stop(5s);
  EXPECT_EQ(writer->written(), 1000u);
  EXPECT_EQ(writer->lost(), 0u);
  std::istringstream lines(text_of(path("records")));
  std::string line;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(line, "{\"n\":" + std::to_string(i) + "}");
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(RecordWriterTest, ALineIsInTheFileWhileTheWriterIsStillOpen) {
  const auto writer = open(path("records"));
  writer->write("{}");
  wait_for_written(*writer, 1);
  EXPECT_EQ(text_of(path("records")), "{}\n");
}

TEST_F(RecordWriterTest, AnOldFileIsContinuedAndANewOneIsPrivate) {
  std::ofstream(path("old")) << "{\"old\":1}\n";
  open(path("old"))->write("{\"new\":1}");
  EXPECT_EQ(text_of(path("old")), "{\"old\":1}\n{\"new\":1}\n");
  open(path("new"))->write("{}");
  struct stat status {};
  ASSERT_EQ(::stat(path("new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(RecordWriterTest, ReopenFollowsARotatedFile) {
  const auto writer = open(path("records"));
  writer->write("{\"n\":1}");
  wait_for_written(*writer, 1);
  fs::rename(path("records"), path("records.1"));
  writer->reopen();
  writer->write("{\"n\":2}");
  writer->stop(5s);
  EXPECT_EQ(text_of(path("records.1")), "{\"n\":1}\n");
  EXPECT_EQ(text_of(path("records")), "{\"n\":2}\n");
}

TEST_F(RecordWriterTest, AReopenThatFailsLosesNothing) {
  fs::create_directory(path("sub"));
  const auto writer = open(path("sub/records"));
  fs::rename(path("sub"), path("moved"));
  testing::internal::CaptureStderr();
  writer->reopen();
  writer->write("{}");
  writer->stop(5s);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("No such file or directory; create its folder first"), std::string::npos) << log;
  EXPECT_EQ(text_of(path("moved/records")), "{}\n");
  EXPECT_EQ(writer->lost(), 0u);
}

TEST_F(RecordWriterTest, WhatCannotBeOpenedIsExplained) {
  const auto missing = RecordWriter::open({path("no/such/file")});
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().to_string(),
            "cannot write records to " + path("no/such/file") + ": No such file or directory; create its folder first");
  const auto folder = RecordWriter::open({folder_.string()});
  ASSERT_FALSE(folder.has_value());
  EXPECT_NE(folder.error().to_string().find("Is a directory; name a file in that folder"), std::string::npos);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const auto pipe = RecordWriter::open({path("pipe")});
  ASSERT_FALSE(pipe.has_value());
  EXPECT_NE(pipe.error().to_string().find("start the reader of the pipe first"), std::string::npos);
}

// A pipe whose reader does not read.
class StuckPipe {
 public:
  explicit StuckPipe(const std::string& path) : path_(path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    open();
  }
  void open() { reader_.reset(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)); }
  void wait_until_full() {
    const int capacity = ::fcntl(reader_.get(), F_GETPIPE_SZ);
    int bytes = 0;
    for (int round = 0; round < 2000 && bytes < capacity; ++round) {
      ASSERT_EQ(::ioctl(reader_.get(), FIONREAD, &bytes), 0);
      ::usleep(5000);
    }
    ASSERT_EQ(bytes, capacity);
  }
  void close() { reader_.reset(); }
  std::string read_all() {
    std::string text;
    char buffer[65536];
    for (ssize_t count; (count = ::read(reader_.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, count);
    return text;
  }

 private:
  std::string path_;
  base::UniqueFd reader_;
};

TEST_F(RecordWriterTest, LossesAreCountedByKind) {
  StuckPipe pipe(path("pipe"));
  const auto writer = open(path("pipe"), 100'000);
  const std::string line(999, 'x');
  std::uint64_t given[2] = {};
  for (std::size_t i = 0; i < 999; ++i) {
    const std::size_t kind = i % 3 == 0 ? 5 : 1;
    writer->write(line, kind);
    ++given[kind == 5];
  }
  writer->stop(100ms);
  EXPECT_GT(writer->lost(1), 0u);
  EXPECT_GT(writer->lost(5), 0u);
  EXPECT_LE(writer->lost(1), given[0]);
  EXPECT_LE(writer->lost(5), given[1]);
  EXPECT_EQ(writer->lost(1) + writer->lost(5), writer->lost());
  EXPECT_EQ(writer->lost(0), 0u);
}

TEST_F(RecordWriterTest, WithAStuckReaderWritesDoNotWaitAndEveryLossIsCounted) {
  StuckPipe pipe(path("pipe"));
  const auto writer = open(path("pipe"), 100'000);
  const std::string line(999, 'x');
  std::uint64_t refused = 0;
  for (int i = 0; i < 1000; ++i) refused += writer->write(line) ? 0 : 1;
  EXPECT_GT(refused, 500u);
  EXPECT_EQ(writer->lost(), refused);
  writer->stop(100ms);
  EXPECT_EQ(writer->written() + writer->lost(), 1000u);
  EXPECT_GT(writer->lost(), refused) << "what was still queued at the end is lost too";
  const std::string text = pipe.read_all();
  EXPECT_EQ(static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')), writer->written());
}

TEST_F(RecordWriterTest, LinesLongerThanThePipeGoThroughWhole) {
  StuckPipe pipe(path("pipe"));
  const auto writer = open(path("pipe"));
  const std::string line(300'000, 'y');
  ASSERT_TRUE(writer->write(line));
  std::string text;
  for (int round = 0; round < 2000 && text.size() <= line.size(); ++round) {
    text += pipe.read_all();
    ::usleep(1000);
  }
  EXPECT_EQ(text, line + "\n");
}

TEST_F(RecordWriterTest, AfterALineThatWasCutShortTheNextStartsOnItsOwn) {
  StuckPipe pipe(path("pipe"));
  const auto writer = open(path("pipe"));
  ASSERT_TRUE(writer->write(std::string(300'000, 'y')));
  pipe.wait_until_full();
  testing::internal::CaptureStderr();
  pipe.close();
  for (int round = 0; round < 2000 && writer->lost() == 0; ++round) ::usleep(5000);
  testing::internal::GetCapturedStderr();
  ASSERT_EQ(writer->lost(), 1u);
  pipe.open();
  std::string text = pipe.read_all();
  writer->write("{}");
  wait_for_written(*writer, 1);
  text += pipe.read_all();
  EXPECT_TRUE(text.ends_with("y\n{}\n")) << text.substr(text.size() - 10);
}

TEST_F(RecordWriterTest, ABlockingStandardOutputWithAStuckReaderDoesNotHoldTheEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const base::UniqueFd reader(ends[0]);
  const int before = ::dup(STDOUT_FILENO);
  ASSERT_EQ(::dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
  ::close(ends[1]);
  const auto writer = open("-");
  ASSERT_EQ(::dup2(before, STDOUT_FILENO), STDOUT_FILENO);
  ::close(before);
  writer->write(std::string(300'000, 'y'));
  writer->stop(100ms);
  EXPECT_EQ(writer->lost(), 1u);
}

TEST_F(RecordWriterTest, AReaderThatLeftIsALossAndNoSignal) {
  StuckPipe pipe(path("pipe"));
  const auto writer = open(path("pipe"));
  pipe.close();
  testing::internal::CaptureStderr();
  writer->write("{}");
  writer->write("{}");
  writer->stop(5s);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(writer->lost(), 2u);
  EXPECT_EQ(log.find("records are being lost"), log.rfind("records are being lost")) << "said once: " << log;
}

TEST_F(RecordWriterTest, AFullDiskLeavesNoTornLine) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{25, before.rlim_max};
  const auto writer = open(path("records"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 3; ++i) writer->write("123456789");
  writer->stop(5s);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(text_of(path("records")), "123456789\n123456789\n");
  EXPECT_EQ(writer->written(), 2u);
  EXPECT_EQ(writer->lost(), 1u);
}

TEST_F(RecordWriterTest, StandardOutputIsADash) {
  testing::internal::CaptureStdout();
  open("-")->write("{}");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "{}\n");
}

TEST_F(RecordWriterTest, AfterStopEverythingIsLost) {
  const auto writer = open(path("records"));
  writer->stop(1s);
  EXPECT_FALSE(writer->write("{}"));
  EXPECT_EQ(writer->lost(), 1u);
}

}  // namespace
}  // namespace inferwire::jsonl
