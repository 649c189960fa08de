// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/code_facts.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <utility>

namespace inferwire::testing {
namespace {

constexpr int kUnknownOffset = std::numeric_limits<int>::max();
constexpr std::size_t kMostOfAKind = 8;
constexpr std::uint8_t kResult = 0, kArguments = 5, kFramePointer = 10;

// A place in the frame of a function, which is named by its first instruction. BPF has no recursion.
using Place = std::pair<std::size_t, int>;

// All that a register or stack slot may hold. Empty: nothing has been put there.
struct Value {
  bool context = false;
  bool other = false;  // anything that is none of these: a number that varies, a pointer to a map's element
  std::set<std::int64_t> constants;
  std::set<Place> stack;
  std::set<std::size_t> functions;

  bool operator==(const Value&) const = default;

  static Value of_other() {
    Value value;
    value.other = true;
    return value;
  }
  static Value of_constant(std::int64_t constant) {
    Value value;
    value.constants.insert(constant);
    return value;
  }

  // Returns whether that added something.
  bool join(const Value& more) {
    Value joined = *this;
    joined.context |= more.context;
    joined.other |= more.other;
    joined.constants.insert(more.constants.begin(), more.constants.end());
    joined.stack.insert(more.stack.begin(), more.stack.end());
    joined.functions.insert(more.functions.begin(), more.functions.end());
    joined.limit();
    if (joined == *this) return false;
    *this = std::move(joined);
    return true;
  }

  // Loops must come to an end.
  void limit() {
    if (constants.size() > kMostOfAKind || (other && !constants.empty())) {
      constants.clear();
      other = true;
    }
    std::set<std::size_t> vague;
    for (const auto& [frame, offset] : stack) {
      if (offset == kUnknownOffset || stack.size() > kMostOfAKind) vague.insert(frame);
    }
    std::erase_if(stack, [&](const Place& place) { return vague.contains(place.first); });
    for (const std::size_t frame : vague) stack.insert({frame, kUnknownOffset});
  }

  void forget_numbers() {
    other = other || !constants.empty();
    constants.clear();
  }
};

Value moved_by(const Value& value, std::int64_t bytes) {
  Value moved = value;
  moved.constants.clear();
  for (const std::int64_t constant : value.constants) moved.constants.insert(constant + bytes);
  moved.stack.clear();
  for (const auto& [frame, offset] : value.stack) {
    moved.stack.insert({frame, offset == kUnknownOffset ? offset : offset + static_cast<int>(bytes)});
  }
  moved.limit();
  return moved;
}

// Of pointer and number: a pointer somewhere into the same thing.
Value mixed(const Value& a, const Value& b) {
  Value sum = a;
  sum.join(b);
  sum.forget_numbers();
  sum.other = true;
  const auto places = std::exchange(sum.stack, {});
  for (const Place& place : places) sum.stack.insert({place.first, kUnknownOffset});
  return sum;
}

int slot_of(int offset) { return offset & ~7; }  // rounds down, also below zero

struct State {
  std::array<Value, kFramePointer + 1> registers;
  std::map<int, Value> slots;  // of the function's own frame

  bool join(const State& more) {
    bool grew = false;
    for (std::size_t i = 0; i < registers.size(); ++i) grew |= registers[i].join(more.registers[i]);
    for (const auto& [offset, value] : more.slots) grew |= slots[offset].join(value);
    return grew;
  }
};

struct Function {
  State entry;
  Value result;
  std::map<std::size_t, std::map<int, Value>> seen;  // of its callers' frames, as they are when it is called
  std::map<std::size_t, State> blocks;               // by first instruction: the join of all ways there
};

class Walk {
 public:
  explicit Walk(std::span<const bpf_insn> code) : code_(code) {}

  CodeFacts run() {
    Value context;
    context.context = true;
    function(0).entry.registers[1] = context;
    do {
      changed_ = false;
      std::vector<std::size_t> known;
      for (const auto& [first, unused] : functions_) known.push_back(first);
      for (const std::size_t first : known) walk(first);
    } while (changed_);
    const Value& result = functions_.at(0).result;
    facts_.results = result.constants;
    facts_.returns_other = result.other || result.context || !result.stack.empty() || !result.functions.empty();
    return std::move(facts_);
  }

 private:
  Function& function(std::size_t first) {
    const auto [at, is_new] = functions_.try_emplace(first);
    if (is_new) {
      changed_ = true;
      at->second.entry.registers[kFramePointer].stack.insert({first, 0});
    }
    return at->second;
  }

  void grow(Value& value, const Value& more) { changed_ |= value.join(more); }

  void walk(std::size_t first) {
    Function& current = functions_.at(first);
    frame_ = first;
    std::deque<std::size_t> todo;
    const auto reach = [&](std::size_t at, const State& state) {
      const auto [block, is_new] = current.blocks.try_emplace(at, state);
      if (!is_new && !block->second.join(state)) return;
      changed_ = true;
      todo.push_back(at);
    };
    reach(first, current.entry);
    // What a callee returns or writes may have grown: begin anew with all that is known.
    for (const auto& [at, unused] : current.blocks) todo.push_back(at);
    while (!todo.empty()) {
      const std::size_t begin = todo.front();
      todo.pop_front();
      State state = current.blocks.at(begin);
      for (std::size_t at = begin;;) {
        if (at >= code_.size()) {
          not_understood(at, "runs past the end");
          break;
        }
        const bpf_insn& insn = code_[at];
        const std::uint8_t kind = BPF_CLASS(insn.code), operation = BPF_OP(insn.code);
        const bool jumps = kind == BPF_JMP || kind == BPF_JMP32;
        if (jumps && operation == BPF_EXIT) {
          grow(current.result, state.registers[kResult]);
          break;
        }
        if (jumps && operation != BPF_CALL) {
          reach(static_cast<std::size_t>(static_cast<std::int64_t>(at) + 1 + insn.off), state);
          if (kind != BPF_JMP || operation != BPF_JA) reach(at + 1, state);
          break;
        }
        at += step(at, state);
      }
    }
  }

  // Returns how many instructions it was.
  std::size_t step(std::size_t at, State& state) {
    const bpf_insn& insn = code_[at];
    auto& registers = state.registers;
    switch (BPF_CLASS(insn.code)) {
      case BPF_ALU64:
      case BPF_ALU:
        registers[insn.dst_reg] = computed(insn, registers);
        return 1;
      case BPF_LD:
        if (BPF_MODE(insn.code) == BPF_IMM && BPF_SIZE(insn.code) == BPF_DW) {
          registers[insn.dst_reg] = Value::of_other();  // a map, a variable, a number
          if (insn.src_reg == BPF_PSEUDO_FUNC) {
            registers[insn.dst_reg] = {};
            registers[insn.dst_reg].functions.insert(target(at));
          }
          return 2;
        }
        registers[kResult] = Value::of_other();  // old packet loads
        return 1;
      case BPF_LDX:
        registers[insn.dst_reg] = loaded(insn, state);
        return 1;
      case BPF_ST:
        store(at, insn, Value::of_other(), state);
        return 1;
      case BPF_STX:
        if (BPF_MODE(insn.code) == BPF_ATOMIC) {
          store(at, insn, Value::of_other(), state);
          if (insn.imm == BPF_CMPXCHG)
            registers[kResult] = Value::of_other();
          else if ((insn.imm & BPF_FETCH) != 0)
            registers[insn.src_reg] = Value::of_other();
          return 1;
        }
        store(at, insn, registers[insn.src_reg], state);
        return 1;
      default:
        call(at, insn, state);
        return 1;
    }
  }

  static Value computed(const bpf_insn& insn, const std::array<Value, kFramePointer + 1>& registers) {
    const bool wide = BPF_CLASS(insn.code) == BPF_ALU64, by_register = BPF_SRC(insn.code) == BPF_X;
    const Value& to = registers[insn.dst_reg];
    const Value& from = registers[insn.src_reg];
    if (BPF_OP(insn.code) == BPF_MOV) {
      if (!by_register) return Value::of_constant(wide ? insn.imm : static_cast<std::uint32_t>(insn.imm));
      if (wide) return from;
      Value low = Value::of_other();  // half of a pointer is none
      if (!from.other && !from.context && from.stack.empty() && from.functions.empty() && !from.constants.empty()) {
        low = {};
        for (const std::int64_t constant : from.constants) low.constants.insert(static_cast<std::uint32_t>(constant));
      }
      return low;
    }
    if (!wide) return Value::of_other();
    if (!by_register && BPF_OP(insn.code) == BPF_ADD) return moved_by(to, insn.imm);
    if (!by_register && BPF_OP(insn.code) == BPF_SUB) return moved_by(to, -static_cast<std::int64_t>(insn.imm));
    return mixed(to, by_register ? from : Value::of_other());
  }

  Value loaded(const bpf_insn& insn, State& state) {
    const Value& from = state.registers[insn.src_reg];
    if (BPF_SIZE(insn.code) != BPF_DW) return Value::of_other();
    // The kernel keeps pointers in stack slots only; from elsewhere come numbers, or pointers that are not the context.
    Value value;
    if (from.stack.empty() || from.other || from.context || !from.constants.empty()) value.other = true;
    for (const auto& [frame, base] : from.stack) {
      const auto take = [&, offset = base](const std::map<int, Value>& slots) {
        for (const auto& [slot, held] : slots) {
          if (offset == kUnknownOffset || slot == slot_of(offset + insn.off) || slot == kUnknownOffset)
            value.join(held);
        }
      };
      take(frame == frame_ ? state.slots : functions_.at(frame_).seen[frame]);
      take(from_outside_[frame]);
    }
    if (value == Value()) value.other = true;  // a helper has filled it
    return value;
  }

  void store(std::size_t at, const bpf_insn& insn, const Value& value, State& state) {
    const Value& to = state.registers[insn.dst_reg];
    if (to.context) facts_.context_writes.insert(at);
    const bool sure = to.stack.size() == 1 && !to.context && !to.other && to.constants.empty();
    for (const auto& [frame, base] : to.stack) {
      const bool vague = base == kUnknownOffset;
      const int slot = vague ? kUnknownOffset : slot_of(base + insn.off);
      const bool whole = BPF_SIZE(insn.code) == BPF_DW && !vague && slot == base + insn.off;
      if (frame == frame_ && !vague) {
        if (sure && whole)
          state.slots[slot] = value;
        else
          state.slots[slot].join(whole ? value : Value::of_other());
      } else {
        grow(from_outside_[frame][slot], value);
      }
    }
  }

  void call(std::size_t at, const bpf_insn& insn, State& state) {
    auto& registers = state.registers;
    Value result = Value::of_other();
    if (BPF_CLASS(insn.code) != BPF_JMP || BPF_SRC(insn.code) != BPF_K) {
      not_understood(at, "a call of an unknown form");
    } else if (insn.src_reg == BPF_PSEUDO_CALL) {
      Function& callee = function(target(at));
      for (std::uint8_t i = 1; i <= kArguments; ++i) grow(callee.entry.registers[i], registers[i]);
      show_frames(callee, state);
      result = callee.result;
    } else if (insn.src_reg == BPF_PSEUDO_KFUNC_CALL) {
      facts_.kernel_functions.insert(at);
    } else if (insn.src_reg == 0) {
      facts_.helpers.insert(static_cast<std::uint32_t>(insn.imm));
      call_back(at, insn, state);
    } else {
      not_understood(at, "a call of an unknown kind");
    }
    registers[kResult] = result;
    for (std::uint8_t i = 1; i <= kArguments; ++i) registers[i] = {};
  }

  // To a function that the current one calls: its own frame, and those that it sees itself.
  void show_frames(Function& callee, const State& state) {
    const auto seen = functions_.at(frame_).seen;
    for (const auto& [frame, slots] : seen) {
      for (const auto& [slot, held] : slots) grow(callee.seen[frame][slot], held);
    }
    for (const auto& [slot, held] : state.slots) grow(callee.seen[frame_][slot], held);
  }

  // A helper that calls functions of ours.
  void call_back(std::size_t at, const bpf_insn& insn, const State& state) {
    const auto& registers = state.registers;
    for (std::uint8_t i = 1; i <= kArguments; ++i) {
      for (const std::size_t first : registers[i].functions) {
        if (insn.imm != BPF_FUNC_loop || i != 2) {
          not_understood(at, "a function is given to helper " + std::to_string(insn.imm));
          continue;
        }
        Function& callee = function(first);
        grow(callee.entry.registers[1], Value::of_other());
        grow(callee.entry.registers[2], registers[3]);
        show_frames(callee, state);
      }
    }
  }

  std::size_t target(std::size_t at) const {
    return static_cast<std::size_t>(static_cast<std::int64_t>(at) + 1 + code_[at].imm);
  }

  void not_understood(std::size_t at, const std::string& what) {
    std::string text = "instruction " + std::to_string(at) + ": " + what;
    auto& all = facts_.not_understood;
    if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
  }

  std::span<const bpf_insn> code_;
  std::map<std::size_t, Function> functions_;
  // By frame: what is written to it by others than its function, or to a slot that is not known (kUnknownOffset).
  std::map<std::size_t, std::map<int, Value>> from_outside_;
  std::size_t frame_ = 0;  // of the function that is being walked
  bool changed_ = false;
  CodeFacts facts_;
};

}  // namespace

CodeFacts facts_of(std::span<const bpf_insn> instructions) { return Walk(instructions).run(); }

}  // namespace inferwire::testing
