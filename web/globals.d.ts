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
