"""The VM's instruction set, modules, assembler and reference machine. `docs/vm.md` is the description."""

from .assembler import assemble, disassemble
from .errors import VMError, VMFormatError
from .isa import Command, Instruction
from .machine import Machine, Step, Suspended, commands_of
from .module import VMFunction, VMModule, decode, encode, validate

__all__ = [
    "Command",
    "Instruction",
    "Machine",
    "Step",
    "Suspended",
    "VMError",
    "VMFormatError",
    "VMFunction",
    "VMModule",
    "assemble",
    "commands_of",
    "decode",
    "disassemble",
    "encode",
    "validate",
]
