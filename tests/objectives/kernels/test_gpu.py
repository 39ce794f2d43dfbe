"""The Triton kernel: what it takes, what it says where it is not there, and its numbers in Triton's interpreter.

The numbers are computed in the environment of `make test-triton` alone; the battery is in `test_conformance.py`.
"""

import itertools
import json
import sys
import types

import pytest
import torch
from torch import Tensor

from strategies import make_pairs
from tpkd.geometry.directions import directions
from tpkd.geometry.divergences import conditional_loss, label_loss
from tpkd.objectives.kernels import code_for, cpu, gpu, values_and_direction
from tpkd.objectives.kernels.batch import Batch
from tpkd.objectives.kernels.gpu import SIZES, choose_sizes, why_not
from tpkd.objectives.linear import linear_tpkd_loss
from tpkd.objectives.tpkd import tpkd_loss

interpreted = pytest.mark.skipif(not gpu.is_interpreted(), reason="needs Triton's interpreter: make test-triton")


@pytest.fixture
def no_programs():
    gpu._programs.cache_clear()
    yield
    gpu._programs.cache_clear()


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, "Triton is not installed"),
        ("2.1.0", "Triton 2.1.0 is older than 3.6"),
        ("3.5.1", "Triton 3.5.1 is older"),
    ],
)
def test_without_triton_or_with_an_old_one_the_tensor_code_takes_over(monkeypatch, module, said):
    fake = None if module is None else types.ModuleType("triton")
    if fake is not None:
        fake.__version__ = module
    monkeypatch.setitem(sys.modules, "triton", fake)
    monkeypatch.setattr(gpu, "is_interpreted", lambda: True)
    monkeypatch.setattr(cpu, "_kernel", None)
    batch = make_pairs("random", 4, 10, seed=0, dtype=torch.float32)
    assert why_not().startswith(said)
    assert code_for(*batch) == "tensor"
    assert tpkd_loss(*batch).isfinite()


@pytest.mark.usefixtures("no_programs")
def test_a_triton_that_cannot_be_loaded_is_told(monkeypatch):
    def broken(name: str) -> types.ModuleType:
        raise ImportError("libcuda.so: no such file")

    monkeypatch.setattr(gpu.importlib, "import_module", broken)
    assert why_not() == "Triton cannot be loaded: libcuda.so: no such file"


def test_a_program_has_at_most_1024_threads():
    for sizes, power, warp_size in itertools.product(SIZES, range(2, 15), (32, 64)):
        assert 1 <= sizes.num_warps(2**power, warp_size) * warp_size <= 1024
    assert [SIZES[0].num_warps(*given) for given in ((2**14, 32), (2**14, 64), (64, 32))] == [32, 16, 1]


@pytest.fixture
def on_a_device(monkeypatch):
    """Logits that say they are on a GPU, and how long each of the sizes takes there."""
    monkeypatch.setattr(gpu, "_chosen", {})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.delenv("TPKD_AUTOTUNE", raising=False)

    class OnDevice(Tensor):
        is_cuda = True

    taken = dict.fromkeys(SIZES, 1.0)
    asked = []

    def run(tensors, sizes):
        asked.append(sizes)

    def do_bench(call, *, warmup, rep, return_mode):
        call()
        assert warmup < rep < 100  # milliseconds
        assert return_mode == "min"
        return taken[asked[-1]]

    monkeypatch.setitem(sys.modules, "triton.testing", types.SimpleNamespace(do_bench=do_bench))
    rows = [torch.zeros(2000, 5).as_subclass(OnDevice) for _ in range(3)]
    tensors = (*rows, torch.zeros(2000, dtype=torch.long), torch.ones(2000, dtype=torch.uint8), torch.zeros(2000))
    return types.SimpleNamespace(tensors=tensors, taken=taken, asked=asked, run=run)


def test_the_fastest_sizes_are_chosen_once_and_stay(on_a_device):
    fastest = SIZES[2]
    on_a_device.taken[fastest] = 0.5
    assert choose_sizes(on_a_device.run, on_a_device.tensors, True) == fastest
    assert sorted(on_a_device.asked) == sorted(SIZES)
    on_a_device.taken[fastest] = 9.0
    assert choose_sizes(on_a_device.run, on_a_device.tensors, True) == fastest
    assert len(on_a_device.asked) == len(SIZES)
    assert choose_sizes(on_a_device.run, on_a_device.tensors, False) == SIZES[0]  # another kind of batch


def test_noise_changes_no_sizes(on_a_device):
    on_a_device.taken[SIZES[1]] = 0.97
    assert choose_sizes(on_a_device.run, on_a_device.tensors) == SIZES[0]


def test_what_is_tried_writes_elsewhere_and_on_few_rows(on_a_device):
    seen = []

    def run(tensors, sizes):
        on_a_device.run(tensors, sizes)
        seen.append(tensors)
        tensors[2].fill_(7.0)
        tensors[5].fill_(7.0)

    choose_sizes(run, on_a_device.tensors)
    assert {len(tensors[0]) for tensors in seen} == {gpu._TIMED_ROWS}
    assert not on_a_device.tensors[2].any()
    assert not on_a_device.tensors[5].any()


def test_no_memory_to_try_anything_is_no_error(on_a_device):
    def run(tensors, sizes):
        raise torch.OutOfMemoryError("CUDA out of memory")

    on_a_device.taken[SIZES[1]] = 0.1
    assert choose_sizes(run, on_a_device.tensors) == SIZES[0]


@pytest.mark.parametrize("reason", ["environment", "deterministic", "capturing", "no device"])
def test_where_nothing_may_be_tried_the_fixed_sizes_are_used(on_a_device, monkeypatch, reason):
    on_a_device.taken[SIZES[1]] = 0.1
    tensors = on_a_device.tensors
    if reason == "environment":
        monkeypatch.setenv("TPKD_AUTOTUNE", "0")
    elif reason == "deterministic":
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    elif reason == "capturing":
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    else:
        tensors = tuple(tensor.as_subclass(Tensor) for tensor in tensors)
    assert choose_sizes(on_a_device.run, tensors) == SIZES[0]
    assert on_a_device.asked == []
    if reason == "capturing":  # and for good: other sizes would give other bits
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        assert choose_sizes(on_a_device.run, tensors) == SIZES[0]
        assert on_a_device.asked == []


def reference(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    z, zt = student.double(), teacher.double()
    losses = label_loss(z, labels) + 0.5 * conditional_loss(z, zt, labels, temperature=temperature)
    return losses, directions(z, zt, labels, temperature=temperature).update


def assert_equals_the_reference(batch, temperature: float, exact: float) -> None:
    """Within `exact` of each row's largest entry, and bit-equal in a second run."""
    found, again = (
        gpu.values_and_direction(Batch(*batch, None, 0.5, 1.0, True, temperature=temperature)) for _ in range(2)
    )
    losses, expected = reference(*batch, temperature)
    assert torch.equal(found.losses, again.losses)
    assert torch.equal(found.direction, again.direction)
    torch.testing.assert_close(found.losses.double(), losses, rtol=5e-6, atol=5e-6)
    scale = expected.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(found.direction / scale, expected / scale, rtol=0, atol=exact, check_dtype=False)
    assert (found.direction >= found.direction.gather(-1, batch[2].unsqueeze(-1))).all()


@interpreted
@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize(
    ("num_classes", "exact"), [(3, 2e-6), (100, 2e-6), (1000, 2e-6), (16384, 5e-5), (16385, 5e-5), (151936, 5e-5)]
)
def test_equals_the_float64_reference(num_classes, exact, temperature):
    student, teacher, labels = make_pairs("random", 2, num_classes, seed=1, dtype=torch.float32)
    assert_equals_the_reference((3 * student, 3 * teacher, labels), temperature, exact)


@interpreted
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_a_long_row_with_more_active_classes_than_there_is_room_for(noise):
    """A teacher that is flat where the student gives all to another class: nearly every class is active."""
    num_classes = 20_000
    generator = torch.Generator().manual_seed(0)
    teacher = noise * torch.randn(2, num_classes, generator=generator)
    student = teacher.clone()
    student[:, 5] = 12.0
    assert_equals_the_reference((student, teacher, torch.tensor([0, 19_999])), 1.0, 5e-5)


@interpreted
def test_a_part_of_a_long_row_may_be_ruled_out():
    student, teacher, labels = make_pairs("random", 2, 20_000, seed=2, dtype=torch.float32)
    labels[:] = 3
    for logits in (student, teacher):
        logits[0, SIZES[0].part : 2 * SIZES[0].part] = -torch.inf
    kept = student[0].isfinite()
    found = gpu.values_and_direction(Batch(student, teacher, labels, None, 0.5, 1.0, True))
    losses, expected = reference(student[:1, kept], teacher[:1, kept], labels[:1], 1.0)
    torch.testing.assert_close(found.losses[:1].double(), losses, rtol=5e-6, atol=0)
    torch.testing.assert_close(found.direction[:1, kept].double(), expected, rtol=0, atol=1e-6)
    assert not found.direction[0, ~kept].any()


@interpreted
@pytest.mark.parametrize("sizes", SIZES[1:])
@pytest.mark.parametrize("num_classes", [1000, 20_000])
def test_all_sizes_give_the_same_up_to_rounding(monkeypatch, num_classes, sizes):
    batch = Batch(*make_pairs("random", 2, num_classes, seed=2, dtype=torch.float32), None, 0.5, 1.0, True)
    expected = gpu.values_and_direction(batch)
    monkeypatch.setattr(gpu, "choose_sizes", lambda *given: sizes)
    found = gpu.values_and_direction(batch)
    torch.testing.assert_close(found.losses, expected.losses, rtol=5e-6, atol=0)
    torch.testing.assert_close(found.direction, expected.direction, rtol=0, atol=1e-6)


@interpreted
@pytest.mark.parametrize("num_classes", [40, 20_000])
def test_ignored_rows_and_strides(num_classes):
    student, teacher, labels = make_pairs("random", 4, num_classes, seed=3, dtype=torch.float32)
    valid = torch.tensor([True, False, True, True])
    expected = gpu.values_and_direction(Batch(student, teacher, labels, None, 0.5, 1.0, True))
    student[1], teacher[1] = torch.nan, torch.inf
    wide = torch.cat([student, student], -1)[:, :num_classes]
    every_other = teacher.repeat_interleave(2, 0)[::2]
    found = gpu.values_and_direction(Batch(wide, every_other, labels, valid, 0.5, 1.0, True))
    assert torch.equal(found.losses[valid], expected.losses[valid])
    assert torch.equal(found.direction[valid], expected.direction[valid])
    assert found.losses[1] == 0
    assert not found.direction[1].any()


@interpreted
@pytest.mark.parametrize("num_classes", [40, 20_000])
def test_the_direction_may_take_the_place_of_the_student(num_classes):
    batch = make_pairs("random", 2, num_classes, seed=4, dtype=torch.float32)
    expected = gpu.values_and_direction(Batch(*batch, None, 0.5, 1.0, True))
    found = gpu.values_and_direction(Batch(*batch, None, 0.5, 1.0, True, overwrite=True))
    assert found.direction is batch.student
    assert torch.equal(found.direction, expected.direction)


@interpreted
@pytest.mark.parametrize("num_classes", [40, 20_000])
@pytest.mark.parametrize("label", [-1, 20_000])
def test_a_label_out_of_range_stops_the_program(monkeypatch, num_classes, label):
    from triton.runtime import interpreter

    # The interpreter takes no notice of the option that turns assertions on.
    monkeypatch.setattr(interpreter.interpreter_builder, "options", interpreter.InterpreterOptions(debug=True))
    student, teacher, labels = make_pairs("random", 2, num_classes, seed=5, dtype=torch.float32)
    labels[1] = label
    with pytest.raises(Exception, match="expected class indices from 0 to K - 1"):
        gpu.values_and_direction(Batch(student, teacher, labels, None, 0.5, 1.0, True))


@interpreted
def test_linear_heads_and_compiled_graphs_use_it(monkeypatch):
    monkeypatch.setattr(cpu, "_kernel", None)
    calls = []
    original = gpu.values_and_direction
    monkeypatch.setattr(gpu, "values_and_direction", lambda *given, **more: calls.append(1) or original(*given, **more))
    num_classes = 2**14  # a compiled graph on a CPU, where the interpreter is, calls a kernel above 2^15 logits
    features, weight = torch.randn(3, 4, requires_grad=True), torch.randn(num_classes, 4, requires_grad=True)
    teacher, labels = torch.randn(3, num_classes), torch.tensor([1, 2, 3])
    loss = linear_tpkd_loss(features, weight, teacher, labels)
    loss.backward()
    assert len(calls) == 1
    torch.testing.assert_close(loss, tpkd_loss(features @ weight.T, teacher, labels))
    compiled = torch.compile(tpkd_loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled((features @ weight.T).detach(), teacher, labels), loss.detach())
    assert len(calls) == 3


@interpreted
def test_what_it_does_not_take_goes_to_the_tensor_code(monkeypatch):
    monkeypatch.setattr(cpu, "_kernel", None)
    z, zt, y = make_pairs("random", 3, 10, seed=6, dtype=torch.float32)
    assert code_for(z, zt, y) == "gpu"
    assert code_for(z, torch._efficientzerotensor(3, 10), y) == "tensor"
    assert code_for(z.to("meta"), zt, y) == "tensor"
    assert values_and_direction(Batch(z[:0], zt[:0], y[:0], None, 0.5, 1.0, True)).losses.shape == (0,)


@interpreted
@pytest.mark.parametrize("num_classes", [100, 1000, 16384, 16385, 151936])
def test_it_moves_few_more_bytes_than_it_must(num_classes):
    from benchmarks.gpu_counts import MOST_IN_PARTS, MOST_WHOLE, traffic

    moved, least = traffic(num_classes, torch.bfloat16)
    assert least <= moved <= least * (MOST_WHOLE if num_classes <= gpu.LONGEST_WHOLE_ROW else MOST_IN_PARTS)


def test_the_counts_in_the_record_keep_their_limits_and_are_on_the_page(tmp_path):
    """`make bench-gpu-counts` wrote them; the page shows them as counts."""
    pytest.importorskip("entmax")  # which the page's other numbers need
    from benchmarks.gpu_counts import MOST_IN_PARTS, MOST_WHOLE, RECORD, SHAPES, TARGETS
    from benchmarks.report import GPU_COUNTS, _gpu_counts

    assert RECORD == GPU_COUNTS
    counted = json.loads(RECORD.read_text())
    assert {row[0] for row in counted["bytes"]} == set(SHAPES)
    for num_classes, _, moved, least in counted["bytes"]:
        assert least <= moved <= least * (MOST_WHOLE if num_classes <= gpu.LONGEST_WHOLE_ROW else MOST_IN_PARTS)
    assert len({row[1] for row in counted["registers"]}) == len(TARGETS)
    assert all(spilled == 0 for *_, spilled in counted["registers"])
    page = "\n\n".join(_gpu_counts())
    assert "These are counts, not times" in page
    assert f"{counted['bytes'][0][2]:,}" in page
    headings = 2 * 2  # of two tables: names, and the line below them
    assert sum(line.startswith("|") for line in page.splitlines()) == headings + sum(map(len, counted.values()))
    assert _gpu_counts(tmp_path / "none.json") == []


@interpreted
def test_the_benchmark_checks_first_and_times_then(monkeypatch, tmp_path):
    from benchmarks import gpu as benchmark

    monkeypatch.setattr(cpu, "_kernel", None)
    monkeypatch.setattr(benchmark, "CHECKED", (3, 16385))
    assert benchmark.main(["--out", str(tmp_path / "report.md"), "--quick", "--seconds", "0"]) == 0
    report = (tmp_path / "report.md").read_text()
    assert "code: gpu" in report
    assert "WRONG" not in report
    assert "| 2 × 10 | bfloat16 | 1.00 |" in report
    monkeypatch.setattr(benchmark, "CHECKED", (3,))
    monkeypatch.setattr(benchmark, "EXACT_OF_FEW", 0.0)
    assert benchmark.main(["--out", str(tmp_path / "report.md"), "--quick", "--seconds", "0"]) == 1
    assert "Nothing was timed" in (tmp_path / "report.md").read_text()


def test_the_benchmark_says_what_it_needs(monkeypatch, capsys):
    from benchmarks import gpu as benchmark

    monkeypatch.setattr(gpu, "is_interpreted", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert benchmark.main([]) == 2
    assert "no NVIDIA or AMD GPU" in capsys.readouterr().out
