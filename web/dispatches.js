/**
 * Encodes command streams (docs/vm.md). Bind groups are made once; the dispatches of a captured function are resolved
 * once and replayed, with the grids and the symbol table of each call.
 */
import { damaged, parse } from "./stream.js";
import { COMMAND, COMMAND_WORDS } from "./vm_constants.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./device.js").Device} Device
 * @typedef {import("./pipelines.js").Pipelines} Pipelines
 * @typedef {{kernel: number, set: number, row: number, pipeline: GPUComputePipeline, group: GPUBindGroup,
 *   offsets: number[]}} Step a resolved dispatch
 */

export class Dispatches {
  /** @type {(GPUBindGroup | undefined)[][]} bind group of [layout][set] */
  #groups;
  /** @type {Map<string, Step[]>} by the function's name */
  #recordings = new Map();

  /**
   * @param {Device} device
   * @param {Manifest} manifest
   * @param {GPUBuffer[]} buffers
   * @param {Pipelines} pipelines
   * @param {GPUBuffer} table
   */
  constructor(device, manifest, buffers, pipelines, table) {
    this.device = device;
    this.manifest = manifest;
    this.buffers = buffers;
    this.pipelines = pipelines;
    this.table = table;
    this.#groups = pipelines.layouts.map(() => []);
  }

  /**
   * Puts another buffer in the place of one; what was resolved is resolved again.
   * @param {number} index
   * @param {GPUBuffer} buffer
   */
  replaceBuffer(index, buffer) {
    this.buffers[index] = buffer;
    this.#groups = this.pipelines.layouts.map(() => []);
    this.#recordings.clear();
  }

  /** @param {GPUCommandEncoder} encoder @param {Uint32Array} commands */
  encode(encoder, commands) {
    /** @type {GPUComputePassEncoder | null} */
    let pass = null;
    for (const command of parse(commands)) {
      if (command.op === COMMAND.READ) break;
      if (command.op === COMMAND.COPY) {
        pass?.end();
        pass = null;
        const { source, sourceOffset, target, targetOffset, bytes } = command;
        encoder.copyBufferToBuffer(this.buffers[source], sourceOffset, this.buffers[target], targetOffset, bytes);
        continue;
      }
      const { pipeline, group, offsets } = this.#resolve(command.kernel, command.set, command.row);
      pass ??= encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group, offsets);
      pass.dispatchWorkgroups(...command.grid);
    }
    pass?.end();
  }

  /**
   * The same for a captured function, whose stream has dispatches only.
   * @param {GPUCommandEncoder} encoder
   * @param {string} name
   * @param {Uint32Array} commands
   */
  replay(encoder, name, commands) {
    let steps = this.#recordings.get(name);
    if (!steps || !isRecordingOf(steps, commands)) {
      steps = [...parse(commands)].map((command) => {
        if (command.op !== COMMAND.DISPATCH) throw damaged(`has command ${command.op} in a captured function`);
        return this.#resolve(command.kernel, command.set, command.row);
      });
      this.#recordings.set(name, steps);
    }
    const pass = encoder.beginComputePass();
    /** @type {GPUComputePipeline | null} */
    let current = null;
    let at = 0;
    for (const { pipeline, group, offsets } of steps) {
      if (pipeline !== current) pass.setPipeline((current = pipeline));
      pass.setBindGroup(0, group, offsets);
      pass.dispatchWorkgroups(commands[at + 3], commands[at + 4], commands[at + 5]);
      at += WORDS;
    }
    pass.end();
  }

  /** @param {number} kernel @param {number} set @param {number} row @returns {Step} */
  #resolve(kernel, set, row) {
    const pipeline = this.pipelines.of(kernel);
    const group = this.#group(this.pipelines.layoutOf(kernel), set);
    return { kernel, set, row, pipeline, group, offsets: [row * this.manifest.table.row_bytes] };
  }

  /** @param {number} layout @param {number} set */
  #group(layout, set) {
    return (this.#groups[layout][set] ??= this.device.gpu.createBindGroup({
      layout: this.pipelines.layouts[layout],
      entries: [
        { binding: 0, resource: { buffer: this.table, size: this.manifest.table.used_bytes } },
        ...this.manifest.binding_sets[set].map(([buffer, offset, size], index) => ({
          binding: index + 1,
          resource: { buffer: this.buffers[buffer], offset, size },
        })),
      ],
    }));
  }
}

const WORDS = COMMAND_WORDS[COMMAND.DISPATCH];

/**
 * Whether the stream makes exactly these dispatches; one whose grid is empty in this call is not in it.
 * @param {Step[]} steps
 * @param {Uint32Array} commands
 */
function isRecordingOf(steps, commands) {
  const end = steps.length * WORDS;
  if (commands[end] !== COMMAND.END) return false;
  return steps.every(({ kernel, set, row }, index) => {
    const at = index * WORDS;
    return (
      commands[at] === COMMAND.DISPATCH &&
      commands[at + 1] === kernel &&
      commands[at + 2] === set &&
      commands[at + 6] === row
    );
  });
}
