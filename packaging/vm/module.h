// A module as it lies in memory, and the loader that holds it to the rules of docs/vm.md.
#pragma once

#include <stdint.h>

#include "opcodes.h"

namespace vm {

struct Header {
  uint32_t magic, version, row_slots, kernels, binding_sets, buffers, functions, strings, instructions, text_bytes;
};

struct Function {
  uint32_t argument_count, slots, table_slots, code_end;
};

struct Instruction {
  Opcode opcode;
  int32_t operands[kMaxOperands];
};

// Pointers into the bytes that were loaded. All is valid only after load() returned kDone.
struct Module {
  const Header* header;
  const Function* functions;
  const uint32_t* text_ends;  // of the functions' names, then of the strings
  const Instruction* code;
  const uint8_t* text;

  uint32_t code_start(uint32_t function) const { return function == 0 ? 0 : functions[function - 1].code_end; }
  uint32_t text_start(uint32_t index) const { return index == 0 ? 0 : text_ends[index - 1]; }
};

// A reason to refuse; -1 where a place or a text is not known.
struct Fault {
  Code code = Code::kDone;
  int64_t expected = 0;
  int64_t actual = 0;
  int32_t function = -1;
  int32_t instruction = -1;
  int32_t text = -1;
};

// Checks everything that may be wrong with a module. `bytes` are 4-aligned and outlive the module.
Fault load(const uint8_t* bytes, uint32_t size, Module* module);

}  // namespace vm
