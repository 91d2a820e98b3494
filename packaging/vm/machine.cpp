#include "machine.h"

namespace vm {
namespace {

// Rounds towards minus infinity, as Python and the symbolic engine do. 64 bits: INT32_MIN // -1 is no trap.
int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

}  // namespace

Code Machine::load(const uint8_t* bytes, uint32_t size) {
  unload();
  fault = vm::load(bytes, size, &module_);
  loaded_ = fault.code == Code::kDone;
  return fault.code;
}

void Machine::unload() {
  loaded_ = false;
  suspended_ = false;
}

Code Machine::call(uint32_t function, uint32_t argument_count, int32_t first_row, int32_t rows) {
  suspended_ = false;
  if (!loaded_) return refuse(Code::kNotLoaded);
  const uint32_t functions = module_.header->functions;
  if (function >= functions) return refuse(Code::kNoFunction, functions, static_cast<int32_t>(function));
  const int64_t row_end = int64_t{first_row} + rows;
  if (rows < 1 || first_row < 0 || row_end > kMaxRows) return refuse(Code::kRowRange, kMaxRows, row_end);
  const uint32_t words = static_cast<uint32_t>(rows) * module_.header->row_slots;
  if (words > kMaxTableWords) return refuse(Code::kTableSize, kMaxTableWords, words);
  const uint32_t expected = module_.functions[function].argument_count;
  if (argument_count != expected) {
    refuse(Code::kArgumentCount, expected, argument_count);
    fault.function = static_cast<int32_t>(function);
    return fault.code;
  }
  first_row_ = first_row;
  rows_ = static_cast<uint32_t>(rows);
  used_rows_ = used_slots_ = executed_ = depth_ = stream_words = 0;
  table_words = words;
  __builtin_memset(table, 0, words * sizeof(int32_t));
  enter(function, arguments);  // cannot fail: there is a row, and a frame's limit is below the stack's
  return run();
}

Code Machine::resume(int32_t value) {
  if (!suspended_) return refuse(Code::kNotSuspended);
  suspended_ = false;
  stream_words = 0;
  set(frames_[depth_ - 1], waiting_slot_, value);
  return run();
}

Code Machine::run() {
  while (depth_ > 0) {
    Frame& frame = frames_[depth_ - 1];
    const Instruction& instruction = module_.code[frame.position++];
    if (++executed_ > kMaxInstructions) {
      fail(Code::kInstructions, kMaxInstructions, executed_);
      return fault.code;
    }
    if (!step(frame, instruction)) return fault.code;
    if (instruction.opcode == Opcode::kRead) {
      suspended_ = true;
      waiting_slot_ = instruction.operands[0];
      return Code::kSuspended;
    }
  }
  return emit(Command::kEnd, nullptr, 0) ? Code::kDone : fault.code;
}

// Runs one instruction; false after a fault.
bool Machine::step(Frame& frame, const Instruction& instruction) {
  const int32_t* operands = instruction.operands;
  int32_t* slots = frame.slots;
  switch (instruction.opcode) {
    case Opcode::kConst:
      set(frame, operands[0], operands[1]);
      return true;
    case Opcode::kMove:
      set(frame, operands[0], slots[operands[1]]);
      return true;
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kMul:
    case Opcode::kFloordiv:
    case Opcode::kFloormod:
    case Opcode::kMin:
    case Opcode::kMax:
      return arithmetic(frame, instruction);
    case Opcode::kArgument:
      set(frame, operands[0], frame.arguments[operands[1]]);
      return true;
    case Opcode::kCheckEqual:
      return check(slots[operands[0]] == slots[operands[1]], Code::kCheckEqual, slots, operands);
    case Opcode::kCheckLessEqual:
      return check(slots[operands[0]] <= slots[operands[1]], Code::kCheckLessEqual, slots, operands);
    case Opcode::kCheckGreaterEqual:
      return check(slots[operands[0]] >= slots[operands[1]], Code::kCheckGreaterEqual, slots, operands);
    case Opcode::kDispatch:
      return dispatch(frame, operands);
    case Opcode::kCopy:
      return copy(frame, operands);
    case Opcode::kCall:
      return enter(static_cast<uint32_t>(operands[0]), slots + operands[1]);
    case Opcode::kRead:
      return emit(Command::kRead, operands + 1, 2);
    case Opcode::kJump:
      frame.position = module_.code_start(frame.function) + static_cast<uint32_t>(operands[0]);
      return true;
    case Opcode::kJumpIfZero:
      if (slots[operands[0]] == 0) {
        frame.position = module_.code_start(frame.function) + static_cast<uint32_t>(operands[1]);
      }
      return true;
    case Opcode::kReturn:
      used_slots_ -= module_.functions[frame.function].slots;
      --depth_;
      return true;
  }
  __builtin_unreachable();  // the loader lets no other opcode pass
}

bool Machine::enter(uint32_t function, const int32_t* call_arguments) {
  const uint32_t count = module_.functions[function].slots;
  if (used_rows_ == rows_) return fail(Code::kRows, rows_, int64_t{rows_} + 1);
  if (used_slots_ + count > kMaxStackSlots) return fail(Code::kStack, kMaxStackSlots, used_slots_ + count);
  int32_t* slots = slots_ + used_slots_;
  __builtin_memset(slots, 0, count * sizeof(int32_t));
  frames_[depth_++] = {function, module_.code_start(function), used_rows_, slots, call_arguments};
  used_slots_ += count;
  ++used_rows_;
  return true;
}

bool Machine::arithmetic(Frame& frame, const Instruction& instruction) {
  const int64_t a = frame.slots[instruction.operands[1]];
  const int64_t b = frame.slots[instruction.operands[2]];
  int64_t value = 0;
  switch (instruction.opcode) {
    case Opcode::kAdd: value = a + b; break;
    case Opcode::kSub: value = a - b; break;
    case Opcode::kMul: value = a * b; break;
    case Opcode::kMin: value = a < b ? a : b; break;
    case Opcode::kMax: value = a > b ? a : b; break;
    default:
      if (b == 0) return fail(Code::kDivision, 0, a);
      value = floor_divide(a, b);
      if (instruction.opcode == Opcode::kFloormod) value = a - value * b;
  }
  if (value < INT32_MIN || value > INT32_MAX) return fail(Code::kOverflow, 0, value);
  set(frame, instruction.operands[0], static_cast<int32_t>(value));
  return true;
}

bool Machine::check(bool holds, Code code, const int32_t* slots, const int32_t* operands) {
  if (holds) return true;
  const int32_t text = static_cast<int32_t>(module_.header->functions) + operands[2];
  return fail(code, slots[operands[1]], slots[operands[0]], text);
}

bool Machine::dispatch(const Frame& frame, const int32_t* operands) {
  int32_t words[6] = {operands[0], operands[1]};
  bool empty = false;
  for (uint32_t axis = 0; axis < 3; ++axis) {
    const int32_t size = frame.slots[operands[2 + axis]];
    if (size < 0 || size > static_cast<int32_t>(kMaxGrid)) return fail(Code::kGrid, kMaxGrid, size);
    empty = empty || size == 0;
    words[2 + axis] = size;
  }
  words[5] = first_row_ + static_cast<int32_t>(frame.row);
  return empty || emit(Command::kDispatch, words, 6);
}

bool Machine::copy(const Frame& frame, const int32_t* operands) {
  // Source offset, target offset, bytes.
  const int32_t values[3] = {frame.slots[operands[1]], frame.slots[operands[3]], frame.slots[operands[4]]};
  for (const int32_t value : values) {
    if (value < 0 || value % 4 != 0) return fail(Code::kCopy, 0, value);
  }
  const int32_t words[5] = {operands[0], values[0], operands[2], values[1], values[2]};
  return values[2] == 0 || emit(Command::kCopy, words, 5);
}

bool Machine::emit(Command command, const int32_t* words, uint32_t count) {
  const uint32_t end = stream_words + 1 + count;
  if (end > kMaxStreamWords) return fail(Code::kStream, kMaxStreamWords, end);
  stream[stream_words] = static_cast<uint32_t>(command);
  for (uint32_t index = 0; index < count; ++index) {
    stream[stream_words + 1 + index] = static_cast<uint32_t>(words[index]);
  }
  stream_words = end;
  return true;
}

void Machine::set(Frame& frame, int32_t slot, int32_t value) {
  frame.slots[slot] = value;
  if (static_cast<uint32_t>(slot) < module_.functions[frame.function].table_slots) {
    table[frame.row * module_.header->row_slots + static_cast<uint32_t>(slot)] = value;
  }
}

// A fault of the host's: there is no place in the program.
Code Machine::refuse(Code code, int64_t expected, int64_t actual) {
  fault = {code, expected, actual};
  return code;
}

// A fault at the instruction that runs. The call is over.
bool Machine::fail(Code code, int64_t expected, int64_t actual, int32_t text) {
  const Frame& frame = frames_[depth_ - 1];
  const uint32_t position = frame.position - 1 - module_.code_start(frame.function);
  fault = {code, expected, actual, static_cast<int32_t>(frame.function), static_cast<int32_t>(position), text};
  return false;
}

}  // namespace vm
