"""What can be counted of the GPU kernel without a GPU: bytes that it moves, registers and spills.

`TRITON_INTERPRET=1 python -m benchmarks.gpu_counts` counts the bytes, `python -m benchmarks.gpu_counts` the registers.
Both need Triton, which is in an environment of its own, and write to gpu-counts.json: `make bench-gpu-counts`. From
there RESULTS.md has them.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tpkd.objectives.kernels import gpu
from tpkd.objectives.kernels.batch import Batch

RECORD = Path(__file__).with_name("gpu-counts.json")
SHAPES = (1000, 4096, 16384, 32768, 151936)
MOST_WHOLE, MOST_IN_PARTS = 1.1, 1.7
"""Bytes moved over the least possible, up to and above `gpu.LONGEST_WHOLE_ROW` classes."""
TARGETS = (("cuda", 80, 32), ("cuda", 90, 32), ("cuda", 100, 32), ("hip", "gfx942", 64))


def bytes_moved(call: Callable[[], object]) -> int:
    """Bytes of all loads and stores of a call in Triton's interpreter."""
    from triton.runtime.interpreter import InterpreterBuilder

    moved = 0
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def counted_load(self: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        nonlocal moved
        found = load(self, pointers, mask, *others)
        moved += int(mask.data.sum()) * found.data.itemsize
        return found

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        nonlocal moved
        moved += int(mask.data.sum()) * value.data.itemsize
        return store(self, pointers, value, mask, *others)

    with (
        patch.object(InterpreterBuilder, "create_masked_load", counted_load),
        patch.object(InterpreterBuilder, "create_masked_store", counted_store),
    ):
        call()
    return moved


def traffic(num_classes: int, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes moved for a row, and the least possible: both networks read once, or twice if too long, and one written."""
    generator = torch.Generator().manual_seed(num_classes)
    student, teacher = (torch.randn(1, num_classes, generator=generator).to(dtype) for _ in range(2))
    batch = Batch(student, teacher, torch.tensor([7]), None, 0.5, 1.0, True)
    passes = 3 if num_classes <= gpu.LONGEST_WHOLE_ROW else 5
    return bytes_moved(lambda: gpu.values_and_direction(batch)), passes * num_classes * dtype.itemsize


@dataclass(frozen=True)
class Resources:
    """What a compiled program takes of a multiprocessor."""

    registers: int
    """Per thread."""
    shared_bytes: int
    spilled: int
    """Registers, or bytes of them, that are kept in memory: 0 unless the program does not fit."""


def _signature(program: Any, dtype: str) -> dict[str, str]:
    kinds = {"student": f"*{dtype}", "teacher": f"*{dtype}", "gradient": f"*{dtype}", "labels": "*i64", "valid": "*u8"}
    kinds |= {"counted": "*i32", "classes": "i32", "parts": "i32", "beta": "fp32", "temperature": "fp32"}
    kinds |= {"weight": "fp32", **dict.fromkeys(("student_stride", "teacher_stride", "gradient_stride"), "i64")}
    return {each.name: "constexpr" if each.is_constexpr else kinds.get(each.name, "*fp32") for each in program.params}


def compiled(
    name: str, dtype: str, target: tuple[str, Any, int], sizes: gpu.Sizes = gpu.SIZES[0], **constants: object
) -> Resources:
    """Compile a program of `gpu_rows` for a GPU that need not be there."""
    import triton
    from triton.backends.compiler import GPUTarget

    from tpkd.objectives.kernels import gpu_rows

    program = getattr(gpu_rows, name)
    values = {each.name: constants[each.name] for each in program.params if each.is_constexpr}
    source = triton.compiler.ASTSource(program, _signature(program, dtype), values)
    warps = sizes.num_warps(int(str(constants["BLOCK"])), target[2])
    options = {"num_warps": warps, "debug": True, "sanitize_overflow": False}
    made = triton.compile(source, target=GPUTarget(*target), options=options)
    if target[0] == "hip":
        told = {key: int(number) for key, number in re.findall(r"\.(\w+):\s+(\d+)", made.asm["amdgcn"])}
        spilled = told["vgpr_spill_count"] + told["sgpr_spill_count"]
        return Resources(told["vgpr_count"], made.metadata.shared, spilled)
    return _ptxas_report(made.asm["ptx"], target[1], made.metadata.shared)


def _ptxas_report(ptx: str, arch: int, shared: int) -> Resources:
    from triton.backends.nvidia.compiler import get_ptxas

    wanted = re.search(r"\.target (\w+)", ptx)
    assert wanted is not None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "program.ptx")
        path.write_text(ptx)
        command = [get_ptxas(arch).path, "-v", f"--gpu-name={wanted[1]}", str(path), "-o", str(path.with_suffix(".o"))]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.search(r"Used (\d+) registers", told)
    assert registers is not None
    return Resources(int(registers[1]), shared, sum(map(int, re.findall(r"(\d+) bytes spill", told))))


def programs(sizes: gpu.Sizes = gpu.SIZES[0]) -> list[tuple[str, dict[str, object]]]:
    """Every program at the sizes that it is launched with: name and constants."""
    whole = [2**power for power in (2, 7, 10, 12, 14)]
    parts = 2**18 // sizes.part
    flags = {"WANTED": True, "TEMPERED": True, "PARTS": parts, "ROOM": max(64, gpu.HELD // parts), "PASS": 0}
    found: list[tuple[str, dict[str, object]]] = [
        ("whole_rows", {**flags, "TEMPERED": tempered, "BLOCK": block}) for block in whole for tempered in (False, True)
    ]
    found += [("parts_of_rows", {**flags, "PASS": number, "BLOCK": sizes.part}) for number in range(3)]
    return [*found, ("row_roots", {**flags, "BLOCK": sizes.part})]


def count_bytes() -> list[list[object]]:
    """Classes, dtype, bytes moved for a row, and the least possible."""
    dtypes = (torch.float32, torch.bfloat16)
    return [[n, str(dtype).removeprefix("torch."), *traffic(n, dtype)] for n in SHAPES for dtype in dtypes]


def count_registers() -> list[list[object]]:
    """Program, target, registers of a thread, bytes of shared memory, and what is spilled."""
    found: list[list[object]] = []
    for name, constants in programs():
        what = f"{name}, {constants['BLOCK']:,} classes"
        what += f", pass {int(str(constants['PASS'])) + 1}" if name == "parts_of_rows" else ""
        what += ", T ≠ 1" if constants["TEMPERED"] else ""
        for target in TARGETS:
            made = compiled(name, "fp32", target, **constants)
            arch = target[1] if target[0] == "hip" else f"sm_{target[1]}"
            found.append([what, arch, made.registers, made.shared_bytes, made.spilled])
    return found


def main() -> None:
    """Add what can be counted here to the record: bytes in the interpreter, registers without it."""
    name, count = ("bytes", count_bytes) if gpu.is_interpreted() else ("registers", count_registers)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record[name] = count()
    lines = [f"{json.dumps(key)}: [\n" + ",\n".join(map(json.dumps, record[key])) + "\n]" for key in sorted(record)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {name} to {RECORD}")


if __name__ == "__main__":
    main()
