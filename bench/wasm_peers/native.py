"""Answers with llama.cpp, outside of a browser. Runs in the peers' own environment.

    native.py MODEL.gguf THREADS TOKENS ID,ID,...

Says {"version": .., "system": ..} once the model is loaded; then, for each line that it reads, computes the prompt
anew, continues it greedily by TOKENS tokens and says {"first": seconds, "last": seconds, "ids": [..]}: from the start
to the first and to the last token. All of these are lines of JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np


class Model:
    """One context of one model. Raises RuntimeError where llama.cpp refuses."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = context
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context: Any = llama_cpp.llama_init_from_model(self.model, parameters)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def reset(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def step(self, ids: Sequence[int]) -> int:
        """The most probable token after `ids`, which continue what was computed before."""
        tokens = (llama_cpp.llama_token * len(ids))(*ids)  # a variable: the batch holds its address alone
        batch = llama_cpp.llama_batch_get_one(tokens, len(ids))
        if status := llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError(f"llama_decode failed with {status}")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())


def main() -> None:
    path, threads, tokens, ids = sys.argv[1:]
    prompt = [int(each) for each in ids.split(",")]
    # Kept in a variable: llama.cpp calls it as long as it runs.
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    llama_cpp.llama_log_set(quiet, None)
    model = Model(path, int(threads), len(prompt) + int(tokens))
    system = llama_cpp.llama_print_system_info().decode()
    print(json.dumps({"version": llama_cpp.__version__, "system": system}), flush=True)
    for _ in sys.stdin:
        model.reset()
        start = time.perf_counter()
        made = [model.step(prompt)]
        first = time.perf_counter() - start
        while len(made) < int(tokens):
            made.append(model.step(made[-1:]))
        print(json.dumps({"first": first, "last": time.perf_counter() - start, "ids": made}), flush=True)


if __name__ == "__main__":
    main()
