// The constants of WebGPU that TypeScript's own declarations of the browser leave out.
declare const GPUBufferUsage: Readonly<
  Record<
    | "MAP_READ" | "MAP_WRITE" | "COPY_SRC" | "COPY_DST" | "INDEX" | "VERTEX" | "UNIFORM" | "STORAGE" | "INDIRECT"
    | "QUERY_RESOLVE",
    number
  >
>;
declare const GPUMapMode: Readonly<Record<"READ" | "WRITE", number>>;
declare const GPUShaderStage: Readonly<Record<"VERTEX" | "FRAGMENT" | "COMPUTE", number>>;

// The parts of Node that node.js and its helpers use.
declare module "node:fs" {
  export function openAsBlob(path: URL): Promise<Blob>;
}
declare module "node:os" {
  export function availableParallelism(): number;
}
declare module "node:url" {
  export function pathToFileURL(path: string): URL;
  export function fileURLToPath(url: URL): string;
}
declare module "node:worker_threads" {
  export class Worker {
    constructor(url: URL, options: { workerData: unknown });
    on(event: "message", listener: (data: any) => void): this;
    on(event: "error", listener: (error: unknown) => void): this;
    postMessage(message: unknown): void;
    terminate(): Promise<number>;
    ref(): void;
    unref(): void;
  }
  export const parentPort: any;
  export const workerData: any;
}
