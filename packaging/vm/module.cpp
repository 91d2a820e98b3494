#include "module.h"

namespace vm {
namespace {

Fault fault(Code code, int64_t expected = 0, int64_t actual = 0, int64_t function = -1, int64_t instruction = -1) {
  return {code, expected, actual, static_cast<int32_t>(function), static_cast<int32_t>(instruction)};
}

Fault check_header(const Header& header) {
  if (header.magic != kMagic) return fault(Code::kBadMagic);
  if (header.version != kVersion) return fault(Code::kBadVersion, kVersion, header.version);
  if (header.row_slots > kMaxRowSlots) return fault(Code::kBadHeader, kMaxRowSlots, header.row_slots);
  if (header.row_slots == 0 || header.row_slots % 4 != 0) return fault(Code::kBadRow, 0, header.row_slots);
  const uint32_t counts[] = {header.kernels, header.binding_sets, header.buffers, header.functions, header.strings};
  for (const uint32_t count : counts) {
    if (count > kMaxObjects) return fault(Code::kBadHeader, kMaxObjects, count);
  }
  return {};
}

Fault check_functions(const Module& module) {
  uint32_t start = 0;
  for (uint32_t index = 0; index < module.header->functions; ++index) {
    const Function& function = module.functions[index];
    const uint32_t row_slots = module.header->row_slots;
    const uint32_t limits[3][2] = {{function.argument_count, kMaxArguments},
                                   {function.slots, kMaxFrameSlots},
                                   {function.table_slots, function.slots < row_slots ? function.slots : row_slots}};
    for (const auto& [value, limit] : limits) {
      if (value > limit) return fault(Code::kBadFunction, limit, value, index);
    }
    if (function.code_end <= start) return fault(Code::kBadCode, 0, function.code_end, index);
    start = function.code_end;
  }
  if (start != module.header->instructions) return fault(Code::kBadCode);
  return {};
}

Fault check_text(const Module& module) {
  uint32_t start = 0;
  for (uint32_t index = 0; index < module.header->functions + module.header->strings; ++index) {
    if (module.text_ends[index] < start) return fault(Code::kBadText);
    start = module.text_ends[index];
  }
  if (start != module.header->text_bytes) return fault(Code::kBadText);
  for (uint32_t index = 0; index < module.header->text_bytes; ++index) {
    if (module.text[index] < ' ' || module.text[index] > '~') return fault(Code::kBadText);
  }
  return {};
}

// What an operand of a kind must stay below; a call reaches only functions before its own, so there is no recursion.
uint32_t operand_limit(Operand kind, const Module& module, uint32_t index, uint32_t code_size) {
  switch (kind) {
    case Operand::kNone: return 1;
    case Operand::kImmediate: return UINT32_MAX;
    case Operand::kSlot: return module.functions[index].slots;
    case Operand::kArgument: return module.functions[index].argument_count;
    case Operand::kKernel: return module.header->kernels;
    case Operand::kSet: return module.header->binding_sets;
    case Operand::kBuffer: return module.header->buffers;
    case Operand::kFunction: return index;
    case Operand::kString: return module.header->strings;
    case Operand::kTarget: return code_size;
    case Operand::kOffset: return 1u << 31;
  }
  return 0;
}

Fault check_code(const Module& module, uint32_t index) {
  const Function& function = module.functions[index];
  const Instruction* code = module.code + module.code_start(index);
  const uint32_t size = function.code_end - module.code_start(index);
  for (uint32_t position = 0; position < size; ++position) {
    const Instruction& instruction = code[position];
    const uint32_t number = static_cast<uint32_t>(instruction.opcode);
    if (number < 1 || number > kOpcodeCount) return fault(Code::kBadOpcode, kOpcodeCount, number, index, position);
    for (uint32_t operand = 0; operand < kMaxOperands; ++operand) {
      const Operand kind = kOperands[number][operand];
      const uint32_t value = static_cast<uint32_t>(instruction.operands[operand]);
      if (kind == Operand::kImmediate) continue;
      const uint32_t limit = operand_limit(kind, module, index, size);
      if (value >= limit || (kind == Operand::kOffset && value % 4 != 0)) {
        return fault(Code::kBadOperand, int64_t{limit} - 1, instruction.operands[operand], index, position);
      }
      // Forward only: every program ends.
      if (kind == Operand::kTarget && value <= position) return fault(Code::kBadJump, position, value, index, position);
    }
    if (instruction.opcode == Opcode::kCall) {
      const uint32_t expected = module.functions[instruction.operands[0]].argument_count;
      const int64_t first = instruction.operands[1];
      const int64_t count = instruction.operands[2];
      if (count != expected) return fault(Code::kBadCall, expected, count, index, position);
      const int64_t last = int64_t{function.slots} - count;
      if (first < 0 || first > last) return fault(Code::kBadOperand, last, first, index, position);
    }
  }
  if (code[size - 1].opcode != Opcode::kReturn) return fault(Code::kBadEnd, 0, 0, index);
  return {};
}

}  // namespace

Fault load(const uint8_t* bytes, uint32_t size, Module* module) {
  if (size < sizeof(Header)) return fault(Code::kTooShort, sizeof(Header), size);
  if (size > kMaxModuleBytes) return fault(Code::kTooLarge, kMaxModuleBytes, size);
  const Header& header = *reinterpret_cast<const Header*>(bytes);
  if (Fault found = check_header(header); found.code != Code::kDone) return found;
  const uint32_t texts = header.functions + header.strings;
  const uint64_t needed = sizeof(Header) + uint64_t{header.functions} * sizeof(Function) + uint64_t{texts} * 4 +
                          uint64_t{header.instructions} * sizeof(Instruction) + header.text_bytes;
  if (needed != size) return fault(Code::kBadSize, static_cast<int64_t>(needed), size);

  module->header = &header;
  module->functions = reinterpret_cast<const Function*>(bytes + sizeof(Header));
  module->text_ends = reinterpret_cast<const uint32_t*>(module->functions + header.functions);
  module->code = reinterpret_cast<const Instruction*>(module->text_ends + texts);
  module->text = reinterpret_cast<const uint8_t*>(module->code + header.instructions);
  if (Fault found = check_functions(*module); found.code != Code::kDone) return found;
  if (Fault found = check_text(*module); found.code != Code::kDone) return found;
  for (uint32_t index = 0; index < header.functions; ++index) {
    if (Fault found = check_code(*module, index); found.code != Code::kDone) return found;
  }
  return {};
}

}  // namespace vm
