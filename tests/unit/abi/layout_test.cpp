// SPDX-License-Identifier: Apache-2.0
// The kernel object's BTF against the same headers compiled for C++: two compilers, two targets, one layout.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "bpf/lib/state.h"
#include "inferwire/event_abi.h"

namespace {

// `type` is "u32", "char[16]", "struct iw_header", "u32[8][4]"; "pointer", "bool", "enum" and others as BTF calls them.
struct Member {
  std::string name;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::string type;
};
struct Structure {
  std::string name;
  std::size_t bytes = 0;
  std::vector<Member> members;
};

// ---- As C++ has it ----

template <class T>
std::string type_name(const std::map<std::string, std::string>& names) {
  if constexpr (std::is_array_v<T>) {
    static_assert(std::rank_v<T> <= 2);
    std::string dimensions;
    for (std::size_t i = 0; i < std::rank_v<T>; ++i) {
      const std::size_t extents[] = {std::extent_v<T, 0>, std::extent_v<T, 1>};
      dimensions += "[" + std::to_string(extents[i]) + "]";
    }
    return type_name<std::remove_all_extents_t<T>>(names) + dimensions;
  } else if constexpr (std::is_same_v<T, char>) {
    return "char";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_enum_v<T>) {
    return "enum";
  } else if constexpr (std::is_pointer_v<T>) {
    return "pointer";
  } else if constexpr (std::is_class_v<T>) {
    return "struct " + names.at(typeid(T).name());
  } else {
    static_assert(std::is_integral_v<T>, "no such type in the interface");
    return (std::is_signed_v<T> ? "s" : "u") + std::to_string(8 * sizeof(T));
  }
}

std::vector<Structure> compiled_structures() {
  std::map<std::string, std::string> names;
#define STRUCT(structure) names[typeid(structure).name()] = #structure;
#define MEMBER(member)
#define END
#include "tests/unit/abi/structures.inc"
#undef STRUCT
#undef MEMBER
#undef END

  std::vector<Structure> structures;
#define STRUCT(structure)                                      \
  {                                                            \
    using Of = structure;                                      \
    structures.push_back({#structure, sizeof(structure), {}}); \
    auto& members = structures.back().members;
#define MEMBER(member) \
  members.push_back({#member, offsetof(Of, member), sizeof(Of::member), type_name<decltype(Of::member)>(names)});
#define END }
#include "tests/unit/abi/structures.inc"
#undef STRUCT
#undef MEMBER
#undef END
  return structures;
}

// ---- As BTF has it ----

class Btf {
 public:
  explicit Btf(const std::string& object) {
    const std::string command = std::string(INFERWIRE_BPFTOOL) + " -j btf dump file '" + object + "'";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string text;
    char block[65536];
    while (pipe) {
      const std::size_t got = fread(block, 1, sizeof block, pipe.get());
      if (got == 0) break;
      text.append(block, got);
    }
    const auto dump = nlohmann::json::parse(text, nullptr, false);
    if (!dump.is_object()) return;
    for (const auto& type : dump.at("types")) types_[type.at("id")] = type;
  }

  std::map<std::string, Structure> structures() const {
    std::map<std::string, Structure> found;
    for (const auto& [id, type] : types_) {
      if (type.at("kind") != "STRUCT") continue;
      Structure structure{type.at("name"), type.at("size"), {}};
      for (const auto& member : type.at("members")) {
        const std::uint32_t of = member.at("type_id");
        std::string name = type_name(of);
        // kind_flag structures have bit fields: the offset's upper byte is a width then.
        if (member.value("bitfield_size", 0) != 0 || member.at("bits_offset").get<std::uint64_t>() % 8 != 0) {
          name = "bit field";
        }
        structure.members.push_back({member.value("name", ""), member.at("bits_offset").get<std::uint64_t>() / 8,
                                     bytes_of(of), std::move(name)});
      }
      found[structure.name] = std::move(structure);
    }
    return found;
  }

 private:
  const nlohmann::json& type(std::uint32_t id) const { return types_.at(id); }

  std::size_t bytes_of(std::uint32_t id) const {
    const auto& of = type(id);
    const std::string kind = of.at("kind");
    if (kind == "ARRAY") return of.at("nr_elems").get<std::size_t>() * bytes_of(of.at("type_id"));
    if (kind == "PTR") return 8;
    if (of.contains("size")) return of.at("size");
    return bytes_of(of.at("type_id"));  // typedef, const, volatile
  }

  std::string type_name(std::uint32_t id, const std::string& dimensions = "") const {
    const auto& of = type(id);
    const std::string kind = of.at("kind");
    if (kind == "ARRAY") {
      return type_name(of.at("type_id"), dimensions + "[" + std::to_string(of.at("nr_elems").get<std::size_t>()) + "]");
    }
    if (kind == "TYPEDEF" || kind == "CONST" || kind == "VOLATILE") return type_name(of.at("type_id"), dimensions);
    if (kind == "PTR") return "pointer" + dimensions;
    if (kind == "ENUM" || kind == "ENUM64") return "enum" + dimensions;
    if (kind == "STRUCT") return "struct " + of.at("name").get<std::string>() + dimensions;
    if (kind != "INT") return kind + dimensions;
    const std::string encoding = of.at("encoding");
    if (encoding == "BOOL") return "bool" + dimensions;
    const std::string name = of.at("name");
    if (name == "char") return "char" + dimensions;
    if (name.find("long") != std::string::npos && name.find("long long") == std::string::npos)
      return "long" + dimensions;
    return (encoding == "SIGNED" ? "s" : "u") + std::to_string(of.at("nr_bits").get<int>()) + dimensions;
  }

  std::map<std::uint32_t, nlohmann::json> types_;
};

const std::map<std::string, Structure>& kernel_structures() {
  static const auto structures = Btf(INFERWIRE_PACKET_OBJECT).structures();
  return structures;
}

// Those of the list that BTF has too. The others fail in one test of their own.
std::vector<std::pair<Structure, Structure>> both() {
  std::vector<std::pair<Structure, Structure>> pairs;
  for (Structure& structure : compiled_structures()) {
    const auto found = kernel_structures().find(structure.name);
    if (found != kernel_structures().end()) pairs.emplace_back(std::move(structure), found->second);
  }
  return pairs;
}

bool is_allowed(const std::string& type) {
  static const std::regex allowed(R"((u8|u16|u32|u64|char|struct iw_\w+)(\[\d+\])*)");
  return std::regex_match(type, allowed);
}

// "[from,to) before `member`" for each hole; none is right.
std::vector<std::string> holes(const Structure& structure) {
  std::vector<std::string> found;
  std::size_t at = 0;
  const auto check = [&](std::size_t offset, const std::string& before) {
    if (offset != at) {
      found.push_back("[" + std::to_string(at) + "," + std::to_string(offset) + ") before " + before);
    }
  };
  for (const Member& member : structure.members) {
    check(member.offset, member.name);
    at = member.offset + member.bytes;
  }
  check(structure.bytes, "the end");
  return found;
}

// A line per member: a difference is shown as one.
std::string describe(const Structure& structure) {
  std::string text;
  for (const Member& member : structure.members) {
    text += std::to_string(member.offset) + " " + member.type + " " + member.name + "\n";
  }
  return text;
}

TEST(Layout, EveryStructureOfTheHeadersIsInTheListAndInTheObject) {
  std::set<std::string> listed;
  for (const Structure& structure : compiled_structures()) listed.insert(structure.name);
  std::set<std::string> declared;
  for (const char* header : {"/bpf/include/inferwire/event_abi.h", "/bpf/lib/state.h"}) {
    std::ifstream file(INFERWIRE_SOURCE_DIR + std::string(header));
    std::stringstream text;
    text << file.rdbuf();
    const std::string content = text.str();
    const std::regex definition(R"(\b(?:struct|union)\s+(\w+)\s*\{)");
    const std::sregex_iterator end;
    std::size_t count = 0;
    for (std::sregex_iterator at(content.begin(), content.end(), definition); at != end; ++at, ++count) {
      declared.insert((*at)[1]);
    }
    EXPECT_GT(count, 0u) << header;
  }
  EXPECT_EQ(listed, declared) << "add it to tests/unit/abi/structures.inc";
  for (const std::string& name : listed) {
    EXPECT_TRUE(kernel_structures().contains(name))
        << name << " is not in the BTF of " << INFERWIRE_PACKET_OBJECT
        << ": a type gets there through a map, a global variable or a function's parameter";
  }
}

TEST(Layout, EveryMemberIsAtTheSamePlaceWithTheSameTypeInBothWorlds) {
  ASSERT_FALSE(both().empty());
  for (const auto& [compiled, kernel] : both()) {
    SCOPED_TRACE(compiled.name);
    EXPECT_EQ(compiled.bytes, kernel.bytes);
    EXPECT_EQ(describe(compiled), describe(kernel)) << "first: C++ by structures.inc, second: the kernel object";
  }
}

TEST(Layout, NothingIsPaddedByTheCompiler) {
  for (const auto& [compiled, kernel] : both()) {
    EXPECT_EQ(holes(compiled), std::vector<std::string>()) << compiled.name << ": make the padding a member";
    EXPECT_EQ(holes(kernel), std::vector<std::string>()) << kernel.name << ": make the padding a member";
  }
}

TEST(Layout, NoMemberIsAPointerABoolAnEnumABitFieldOrOfAWidthThatVaries) {
  for (const auto& [compiled, kernel] : both()) {
    for (const Member& member : kernel.members) {
      EXPECT_TRUE(is_allowed(member.type)) << kernel.name << "." << member.name << " is " << member.type;
    }
  }
}

// Records come back to back from iterators and 8-byte aligned from the ring buffer.
TEST(Layout, RecordsAreWholeWordsLong) {
  for (const auto& [compiled, kernel] : both()) {
    if (compiled.name != "iw_record" && compiled.name != "iw_delivery" && compiled.name != "iw_header") continue;
    EXPECT_EQ(compiled.bytes % 8, 0u) << compiled.name;
  }
}

}  // namespace
