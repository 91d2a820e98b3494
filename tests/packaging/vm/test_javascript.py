"""web/vm.js under node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from webrelax.compiler.vm import assemble, encode

SCRIPT = """
import { readFileSync } from "node:fs";
const [wrapper, wasm, module] = process.argv.slice(1);
const { loadVM, VMError } = await import(wrapper);
const compiled = await WebAssembly.compile(readFileSync(wasm));
const bytes = readFileSync(module);
const refusal = async (action) => {
  try { await action(); } catch (error) { return [error instanceof VMError, error.message]; }
  return null;
};
const plain = ({ status, commands, table }) => ({ status, commands: [...commands], table: [...table] });
const vm = await loadVM(compiled, bytes);
const main = vm.find("main");
const first = plain(vm.call(main, new Int32Array([7]), 3, 2));
const second = plain(vm.resume(-1));
const large = new Uint8Array(1 << 24);
const results = {
  main, missing: vm.find("nothing"), first, second,
  check: await refusal(() => vm.call(main, new Int32Array([9]), 0, 2)),
  count: await refusal(() => vm.call(main, new Int32Array(5000))),
  rows: await refusal(() => vm.call(main, new Int32Array([7]), 0, 1)),
  resume: await refusal(() => vm.resume(0)),
  damaged: await refusal(() => loadVM(readFileSync(wasm), bytes.subarray(0, -1))),
  grown: await refusal(() => vm.load(large)),
  tooLarge: await refusal(() => vm.load(new Uint8Array((1 << 24) + 1))),
  unloaded: await refusal(() => vm.call(main, new Int32Array([7]), 3, 2)),
};
vm.load(bytes);
results.again = plain(vm.call(main, new Int32Array([7]), 3, 2));
console.log(JSON.stringify(results));
"""

MODULE = """
module row_slots=4 kernels=2 sets=3 buffers=1
string "n of tokens"
function inner arguments=1 slots=1 table_slots=1
    argument s0 a0
    dispatch k1 b2 s0 s0 s0
    return
function main arguments=1 slots=2 table_slots=2
    argument s0 a0
    const s1 8
    check_less_equal s0 s1 t0
    call f0 0 1
    read s1 m0 16
    return
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_wrapper(vm_wasm: Path, tmp_path: Path) -> None:
    module = tmp_path / "module.bin"
    module.write_bytes(encode(assemble(MODULE)))
    wrapper = (vm_wasm.parent / "vm.js").as_uri()
    command = ["node", "--input-type=module", "--eval", SCRIPT, wrapper, str(vm_wasm), str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    first = {"status": 1, "commands": [1, 1, 2, 7, 7, 7, 4, 3, 0, 16], "table": [7, 8, 0, 0, 7, 0, 0, 0]}
    assert results == {
        "main": 1,
        "missing": -1,
        "first": first,
        "second": {"status": 0, "commands": [0], "table": [7, -1, 0, 0, 7, 0, 0, 0]},
        "check": [True, "n of tokens: expected at most 8, got 9"],
        "count": [True, "function main takes 1 arguments and got 5000"],
        "rows": [True, "the call needs more than the 1 table rows it was given"],
        "resume": [True, "the VM is not suspended, so it cannot resume"],
        "damaged": [
            True,
            f"the module's sections need {module.stat().st_size} bytes and it has "
            f"{module.stat().st_size - 1}: it is damaged",
        ],
        "grown": [True, "the module does not begin with WRVM: it is damaged or not a module"],
        "tooLarge": [False, "the model's program has 16777217 bytes, more than the limit of 16777216"],
        "unloaded": [True, "no module is loaded"],
        "again": first,
    }
