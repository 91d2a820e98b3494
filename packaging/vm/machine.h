// Runs the calls of one loaded module; the reference is compiler/vm/machine.py.
#pragma once

#include "module.h"

namespace vm {

// All memory of a machine is in it: it makes one static object, of some 7 MB that stay untouched unless used.
class Machine {
 public:
  // The bytes of the module must outlive the machine's calls.
  Code load(const uint8_t* bytes, uint32_t size);
  void unload();

  // Reads its arguments from `arguments`. A suspended call is dropped.
  Code call(uint32_t function, uint32_t argument_count, int32_t first_row, int32_t rows);
  Code resume(int32_t value);

  // nullptr before a module is loaded.
  const Module* module() const { return loaded_ ? &module_ : nullptr; }

  int32_t arguments[kMaxArguments];
  int32_t table[kMaxTableWords];
  uint32_t table_words = 0;
  uint32_t stream[kMaxStreamWords];
  uint32_t stream_words = 0;
  Fault fault;

 private:
  struct Frame {
    uint32_t function;
    uint32_t position;  // of the next instruction, in the module's code
    uint32_t row;       // counted from the call's first row
    int32_t* slots;
    const int32_t* arguments;  // the caller's slots, which stay as they are until the callee returns
  };

  Code run();
  bool step(Frame& frame, const Instruction& instruction);
  bool enter(uint32_t function, const int32_t* arguments);
  bool arithmetic(Frame& frame, const Instruction& instruction);
  bool check(bool holds, Code code, const int32_t* slots, const int32_t* operands);
  bool dispatch(const Frame& frame, const int32_t* operands);
  bool copy(const Frame& frame, const int32_t* operands);
  bool emit(Command command, const int32_t* words, uint32_t count);
  void set(Frame& frame, int32_t slot, int32_t value);
  Code refuse(Code code, int64_t expected = 0, int64_t actual = 0);
  bool fail(Code code, int64_t expected, int64_t actual, int32_t text = -1);

  Module module_;
  bool loaded_ = false;
  bool suspended_ = false;
  int32_t waiting_slot_ = 0;
  int32_t first_row_ = 0;
  uint32_t rows_ = 0;
  uint32_t used_rows_ = 0;
  uint32_t used_slots_ = 0;
  uint32_t executed_ = 0;
  uint32_t depth_ = 0;
  Frame frames_[kMaxRows];  // each active call has a row
  int32_t slots_[kMaxStackSlots];
};

}  // namespace vm
