"""Writes blocks.bin: random blocks of every quantised format and their values by the `gguf` package.

Run with Python and `pip install gguf==0.19.0`; the output depends on nothing else.

Layout, little-endian: for each format a record of
  u32 ggml type id, u32 byte count, the bytes of BLOCKS blocks, u32 value count, the values as f32.
The scales that are halves are made finite, so that no result is NaN; everything else is random.
"""

import struct
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

BLOCKS = 8

# Byte offsets of the halves in a block.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "IQ3_S": [0],
    "MXFP4": [],
    "F16": [0],
    "BF16": [],
}


def main() -> None:
    np.seterr(over="ignore")  # the largest MXFP4 scale reaches infinity, as it should
    rng = np.random.default_rng(20240229)
    out = bytearray()
    for name, halves in HALVES.items():
        dtype = GGMLQuantizationType[name]
        length, size = GGML_QUANT_SIZES[dtype]
        count = BLOCKS if length > 1 else 64
        blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in halves:
            exponent = blocks[:, at + 1] & 0x7C
            blocks[exponent == 0x7C, at + 1] ^= 0x04
        if name == "BF16":
            blocks[:, 1] &= 0xBF
        if name == "MXFP4":
            blocks[:4, 0] = [0, 1, 2, 255]
        values = dequantize(blocks.reshape(1, -1), dtype).astype("<f4").reshape(-1)
        assert not np.isnan(values).any() and values.size == count * length, name
        out += struct.pack("<II", dtype, blocks.size) + blocks.tobytes()
        out += struct.pack("<I", values.size) + values.tobytes()
    Path(__file__).with_name("blocks.bin").write_bytes(out)


if __name__ == "__main__":
    main()
