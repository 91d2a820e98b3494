"""The page and the command line choose the same tokens for the same seed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from webrelax.packaging.sampling import Sampling, sample

SAMPLER = Path(__file__).parents[2] / "web/sampler.js"
CASES = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=1.5, top_p=0.9, seed=2**53 - 1),
    Sampling(temperature=1.0, top_k=40, seed=2**32),
    Sampling(temperature=0.3, top_k=10, top_p=0.5, seed=12345),
)
SCRIPT = """
const { sample } = await import(process.argv[1]);
const { logits, cases } = JSON.parse(process.argv[2]);
const array = Float32Array.from(logits);
const options = cases.map(({ temperature, top_k, top_p, seed }) => ({ temperature, topK: top_k, topP: top_p, seed }));
const draw = (options) => Array.from({ length: 200 }, (_, position) => sample(array, options, position));
console.log(JSON.stringify(options.map(draw)));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_same_choices() -> None:
    logits = np.random.default_rng(0).normal(0, 3, 2000).astype(np.float32)
    given = {"logits": logits.tolist(), "cases": [vars(case) for case in CASES]}
    command = ["node", "--input-type=module", "--eval", SCRIPT, str(SAMPLER), json.dumps(given)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for case, tokens in zip(CASES, found, strict=True):
        assert tokens == [sample(logits, case, position) for position in range(200)], case
