// The exports of vm.wasm: docs/vm.md describes them. There are no imports, and no C library.

#include "machine.h"

#define VM_EXPORT(name) extern "C" __attribute__((export_name(#name), used)) auto name

extern "C" unsigned char __heap_base;  // from the linker: the first byte behind the static data and the stack

namespace {

constexpr uint32_t kPage = 65536;

vm::Machine machine;
uint32_t room = 0;  // bytes that vm_allocate promised

uint32_t heap() { return (reinterpret_cast<uint32_t>(&__heap_base) + 15) & ~15u; }

bool reserve(uint32_t bytes) {
  const uint32_t pages = (heap() + bytes + kPage - 1) / kPage;
  const uint32_t have = __builtin_wasm_memory_size(0);
  return pages <= have || __builtin_wasm_memory_grow(0, pages - have) != static_cast<uint32_t>(-1);
}

uint32_t texts() {
  const vm::Module* module = machine.module();
  return module == nullptr ? 0 : module->header->functions + module->header->strings;
}

}  // namespace

VM_EXPORT(vm_allocate)(uint32_t bytes) -> uint32_t {
  machine.unload();
  room = bytes <= vm::kMaxModuleBytes && reserve(bytes) ? bytes : 0;
  return room == bytes ? heap() : 0;
}

VM_EXPORT(vm_load)(uint32_t pointer, uint32_t bytes) -> vm::Code {
  if (pointer != heap() || bytes > room) return vm::Code::kNotLoaded;
  return machine.load(reinterpret_cast<const uint8_t*>(pointer), bytes);
}

VM_EXPORT(vm_find)(const uint8_t* name, uint32_t bytes) -> int32_t {
  const vm::Module* module = machine.module();
  const uint32_t functions = module == nullptr ? 0 : module->header->functions;
  for (uint32_t index = 0; index < functions; ++index) {
    const uint32_t start = module->text_start(index);
    if (module->text_ends[index] - start != bytes) continue;
    uint32_t same = 0;
    while (same < bytes && module->text[start + same] == name[same]) ++same;
    if (same == bytes) return static_cast<int32_t>(index);
  }
  return -1;
}

VM_EXPORT(vm_text)(uint32_t index) -> const uint8_t* {
  return index < texts() ? machine.module()->text + machine.module()->text_start(index) : nullptr;
}

VM_EXPORT(vm_text_bytes)(uint32_t index) -> uint32_t {
  return index < texts() ? machine.module()->text_ends[index] - machine.module()->text_start(index) : 0;
}

VM_EXPORT(vm_arguments)() -> int32_t* { return machine.arguments; }

VM_EXPORT(vm_call)(uint32_t function, uint32_t arguments, int32_t first_row, int32_t rows) -> vm::Code {
  return machine.call(function, arguments, first_row, rows);
}

VM_EXPORT(vm_resume)(int32_t value) -> vm::Code { return machine.resume(value); }

VM_EXPORT(vm_table)() -> int32_t* { return machine.table; }
VM_EXPORT(vm_table_words)() -> uint32_t { return machine.table_words; }
VM_EXPORT(vm_stream)() -> uint32_t* { return machine.stream; }
VM_EXPORT(vm_stream_words)() -> uint32_t { return machine.stream_words; }

VM_EXPORT(vm_error_function)() -> int32_t { return machine.fault.function; }
VM_EXPORT(vm_error_instruction)() -> int32_t { return machine.fault.instruction; }
VM_EXPORT(vm_error_text)() -> int32_t { return machine.fault.text; }
VM_EXPORT(vm_error_expected)() -> double { return static_cast<double>(machine.fault.expected); }
VM_EXPORT(vm_error_actual)() -> double { return static_cast<double>(machine.fault.actual); }
