"""Writes a GGUF model for onnxruntime-web, in float32 and with 8-bit weights. Runs in the peers' own environment.

    export_onnx.py MODEL.gguf OUTPUT

OUTPUT/fp32 and OUTPUT/q8 hold a model.onnx, its model.onnx.data and a genai_config.json. The weights are the GGUF
file's, dequantized; q8 is what transformers.js calls so: dynamic quantization, 8-bit weights with a scale for each
output channel, 8-bit activations. Logits are computed for the last token only, as a text generator wants them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import AutoModelForCausalLM, AutoTokenizer

# The exporter's record of the model's sizes.
SIZES = "genai_config.json"


def dequantize(gguf: Path, folder: Path) -> None:
    """The model as a Hugging Face folder of float32 weights, which the exporter reads."""
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # What was read keeps a quantized model's marks, and cannot be saved.
    del read.config.quantization_config
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def export(folder: Path, output: Path) -> None:
    # -P: the root's packaging/ would hide the library of that name.
    command = [sys.executable, "-P", "-m", "onnxruntime_genai.models.builder", "-i", str(folder), "-o", str(output)]
    command += ["-p", "fp32", "-e", "cpu", "-c", str(folder / "cache"), "--extra_options", "prune_lm_head=true"]
    subprocess.run(command, check=True)


def quantize(fp32: Path, q8: Path) -> None:
    q8.mkdir(parents=True, exist_ok=True)
    quantize_dynamic(
        fp32 / "model.onnx",
        q8 / "model.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
        use_external_data_format=True,
        extra_options={"MatMulConstBOnly": True},
    )
    shutil.copy(fp32 / SIZES, q8 / SIZES)


def main() -> None:
    gguf, output = (Path(argument).resolve() for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        dequantize(gguf, Path(folder))
        export(Path(folder), output / "fp32")
    quantize(output / "fp32", output / "q8")


if __name__ == "__main__":
    main()
