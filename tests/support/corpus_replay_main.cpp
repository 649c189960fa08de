// SPDX-License-Identifier: Apache-2.0
// main() of a fuzz target outside the fuzz preset: feeds every file of the given folders to the target once, so that
// each input that once broke something stays a test. An empty corpus is a failure: it would test nothing.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t input_bytes);

namespace {

/// Returns the number of files run; a crash in the target ends the process, after its name was printed.
std::size_t run_folder(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::printf("%s (%zu bytes)\n", entry.path().c_str(), bytes.size());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++count;
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      std::fprintf(stderr, "corpus folder %s does not exist\n", argv[i]);
      return 1;
    }
    count += run_folder(argv[i]);
  }
  if (count == 0) {
    std::fprintf(stderr, "no corpus file found; expected at least one\n");
    return 1;
  }
  std::printf("%zu inputs, no crash\n", count);
  return 0;
}
