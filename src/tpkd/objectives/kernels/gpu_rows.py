"""The protected loss in Triton: a row in one program, or a long row in parts.

What `_cpu.c` keeps in its core's cache is kept in registers here: both networks of a row are read once. A row that does
not fit is dealt out in parts, which are read three times: for the sums, for the threshold, for the direction. In
between, every part passes on the few u below its own root, because no other can be active in the whole row: the
root of a part is an upper bound of that of the row. Where these are more than there is room for, one program reads the
row again.

Everything is computed in float32. No order of sums depends on how programs are scheduled.
"""

import triton
import triton.language as tl

LANES = tl.constexpr(64)
STEPS = tl.constexpr(64)
"""Newton's steps at most; a few suffice."""
NUMBERS = tl.constexpr(6)
"""Kept of every part: largest logits of both networks, and its sums as `_sums` returns them."""
INFINITY = tl.constexpr(float("inf"))
SUMS, ROOTS, DIRECTIONS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""The passes over long rows."""


@triton.jit
def _label_of(student, labels, valid, row, student_stride, classes):
    """The label, its logit, and the number of classes to read: none where the row is ignored."""
    label, width = tl.load(labels + row), tl.where(tl.load(valid + row) != 0, classes, 0)
    known = (label >= 0) & (label < classes)
    tl.device_assert(known, "labels: expected class indices from 0 to K - 1 or ignore_index")
    logit = tl.load(student + row * student_stride + label, mask=known & (width > 0), other=0.0)
    return label, logit.to(tl.float32), width


@triton.jit
def _others(logits, row, stride, columns, width, label):
    """Logits of the incorrect classes, -inf elsewhere; zeros in an ignored row, with which any sum is finite."""
    wanted, other = (columns < width) & (columns != label), tl.where(width > 0, -INFINITY, 0.0)
    return tl.load(logits + row * stride + columns, mask=wanted, other=other).to(tl.float32)


@triton.jit
def _sums(z, zt, most, most_t, temperature, TEMPERED: tl.constexpr):
    """Sums of e_s, of the same softened, of e_t, and of e_t times the log-ratio, relative to given logits."""
    z, zt, sharpness = z - most, zt - most_t, 1.0 / temperature
    t = tl.exp(zt * sharpness)
    expected = tl.sum(tl.where(t > 0, t * (zt - z), 0.0), 0)
    sum_t = tl.sum(t, 0)
    sum_x = tl.sum(tl.exp(z * sharpness), 0)
    sum_s = sum_x
    if TEMPERED:
        sum_s = tl.sum(tl.exp(z), 0)
    return sum_s, sum_x, sum_t, expected


@triton.jit
def _difference(z, zt, most, most_t, ratio, temperature):
    """u times the sum of the student's softened exponentials; equal logits give exactly 0."""
    sharpness = 1.0 / temperature
    return tl.exp((z - most) * sharpness) - ratio * tl.exp((zt - most_t) * sharpness)


@triton.jit
def _descend(u, zeta):
    """Newton's steps from an upper bound of the root down to the root."""
    step = 0
    while step < STEPS:
        active = u < zeta
        bound = tl.sum(tl.where(active, u, 0.0), 0) / (tl.sum(active.to(tl.float32), 0) + 1.0)
        step = tl.where(bound < zeta, step + 1, STEPS)
        zeta = tl.where(bound < zeta, bound, zeta)
    return zeta


@triton.jit
def _root(u, BLOCK: tl.constexpr):
    """From the root of the least u of each lane."""
    zeta = 0.0
    if BLOCK > 4 * LANES:
        zeta = _descend(tl.min(tl.reshape(u, (BLOCK // LANES, LANES)), 0), zeta)
    return _descend(u, zeta)


@triton.jit
def _loss(lag, ratio, expected, sum_t, beta, temperature):
    """Label loss and conditional loss of a row; a nan stays."""
    small = tl.exp(-tl.abs(lag))
    rounded = 1.0 + small  # log(1 + x) = x log(w) / (w - 1) keeps its digits with the rounded sum w
    tail = tl.where(rounded == 1.0, small, tl.log(rounded) * small / (rounded - 1.0))
    conditional = tl.log(ratio) + expected / temperature / sum_t
    conditional = tl.where(conditional < 0, 0.0, conditional)
    return tl.where(lag > 0, lag, 0.0) + tail + beta * temperature * temperature * conditional


@triton.jit
def _write(
    gradient, row, stride, columns, classes, width, label, z, u, most, zeta, lag, sum_s, sum_x,
    beta, temperature, weight,
):  # fmt: skip
    """The weighted direction: max(u, zeta) in an order that lets a nan through."""
    weight = tl.where(width > 0, weight, 0.0)
    residual = weight / (1.0 + tl.exp(-lag))
    on_teacher = beta * weight * temperature / sum_x
    v = residual / sum_s * tl.exp(z - most) + on_teacher * tl.where(u < zeta, zeta, u)
    v = tl.where(columns == label, on_teacher * zeta - residual, v)
    tl.store(gradient + row * stride + columns, v.to(gradient.dtype.element_ty), mask=columns < classes)


@triton.jit
def whole_rows(
    student, teacher, gradient, labels, valid, losses, student_stride, teacher_stride, gradient_stride, classes,
    beta, temperature, weight,
    WANTED: tl.constexpr, TEMPERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for each row of at most BLOCK classes."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    label, label_logit, width = _label_of(student, labels, valid, row, student_stride, classes)
    z = _others(student, row, student_stride, columns, width, label)
    zt = _others(teacher, row, teacher_stride, columns, width, label)
    most, most_t = tl.max(z, 0), tl.max(zt, 0)
    sum_s, sum_x, sum_t, expected = _sums(z, zt, most, most_t, temperature, TEMPERED)
    lag, ratio = tl.log(sum_s) + (most - label_logit), sum_x / sum_t
    loss = _loss(lag, ratio, expected, sum_t, beta, temperature)
    tl.store(losses + row, tl.where(width > 0, loss, 0.0))
    if WANTED:
        u = _difference(z, zt, most, most_t, ratio, temperature)
        zeta = _root(u, BLOCK)
        _write(
            gradient, row, gradient_stride, columns, classes, width, label, z, u, most, zeta, lag, sum_s, sum_x,
            beta, temperature, weight,
        )  # fmt: skip


@triton.jit
def _combined(numbers, row, parts, temperature, PARTS: tl.constexpr):
    """Largest logits and sums of a row, of those of its parts."""
    part = tl.arange(0, PARTS)
    at, there = numbers + (row * parts + part) * NUMBERS, part < parts
    mosts = tl.load(at, mask=there, other=-INFINITY)
    mosts_t = tl.load(at + 1, mask=there, other=-INFINITY)
    most, most_t = tl.max(mosts, 0), tl.max(mosts_t, 0)
    behind, behind_t = mosts - most, mosts_t - most_t
    sum_s = tl.sum(tl.exp(behind) * tl.load(at + 2, mask=there, other=0.0), 0)
    sum_x = tl.sum(tl.exp(behind / temperature) * tl.load(at + 3, mask=there, other=0.0), 0)
    scale = tl.exp(behind_t / temperature)
    sums_t = tl.load(at + 4, mask=there, other=0.0)
    expected = scale * (tl.load(at + 5, mask=there, other=0.0) + sums_t * (behind_t - behind))
    return most, most_t, sum_s, sum_x, tl.sum(scale * sums_t, 0), tl.sum(tl.where(scale * sums_t > 0, expected, 0.0), 0)


@triton.jit
def parts_of_rows(
    student, teacher, gradient, labels, valid, losses, numbers, roots, counted, candidates, lags, zetas,
    student_stride, teacher_stride, gradient_stride, classes, beta, temperature, weight,
    PASS: tl.constexpr, TEMPERED: tl.constexpr, PARTS: tl.constexpr, ROOM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for each part of a long row, in three passes; the last may write over the student."""
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    columns, place = part * BLOCK + tl.arange(0, BLOCK), row * parts + part
    label, _, width = _label_of(student, labels, valid, row, student_stride, classes)
    z = _others(student, row, student_stride, columns, width, label)
    zt = _others(teacher, row, teacher_stride, columns, width, label)
    if PASS == SUMS:
        most, most_t = tl.max(z, 0), tl.max(zt, 0)
        # A part may have nothing: its sums are 0, whatever they are relative to.
        base, base_t = tl.where(most == -INFINITY, 0.0, most), tl.where(most_t == -INFINITY, 0.0, most_t)
        tl.store(numbers + place * NUMBERS, most)
        tl.store(numbers + place * NUMBERS + 1, most_t)
        sums = _sums(z, zt, base, base_t, temperature, TEMPERED)
        for number in tl.static_range(NUMBERS - 2):
            tl.store(numbers + place * NUMBERS + 2 + number, sums[number])
    else:
        most, most_t, sum_s, sum_x, sum_t, _ = _combined(numbers, row, parts, temperature, PARTS)
        u = _difference(z, zt, most, most_t, sum_x / sum_t, temperature)
        if PASS == ROOTS:
            zeta = _root(u, BLOCK)
            below = u < zeta
            order = tl.cumsum(below.to(tl.int32), 0) - 1
            tl.store(candidates + place * ROOM + order, u, mask=below & (order < ROOM))
            tl.store(roots + place, zeta)
            tl.store(counted + place, tl.sum(below.to(tl.int32), 0))
        else:
            _write(
                gradient, row, gradient_stride, columns, classes, width, label, z, u, most, tl.load(zetas + row),
                tl.load(lags + row), sum_s, sum_x, beta, temperature, weight,
            )  # fmt: skip


@triton.jit
def row_roots(
    student, teacher, gradient, labels, valid, losses, numbers, roots, counted, candidates, lags, zetas,
    student_stride, teacher_stride, gradient_stride, classes, beta, temperature, weight,
    WANTED: tl.constexpr, PARTS: tl.constexpr, ROOM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for each long row, before the last pass: its loss and its root."""
    row, parts = tl.program_id(0).to(tl.int64), tl.cdiv(classes, BLOCK)
    label, label_logit, width = _label_of(student, labels, valid, row, student_stride, classes)
    most, most_t, sum_s, sum_x, sum_t, expected = _combined(numbers, row, parts, temperature, PARTS)
    lag, ratio = tl.log(sum_s) + (most - label_logit), sum_x / sum_t
    tl.store(losses + row, tl.where(width > 0, _loss(lag, ratio, expected, sum_t, beta, temperature), 0.0))
    tl.store(lags + row, lag)
    if WANTED:
        part = tl.arange(0, PARTS)
        found = tl.load(counted + row * parts + part, mask=part < parts, other=0)
        zeta = tl.min(tl.load(roots + row * parts + part, mask=part < parts, other=0.0), 0)
        place = tl.arange(0, PARTS * ROOM)
        held = tl.load(counted + row * parts + place // ROOM, mask=place < parts * ROOM, other=0)
        known = place % ROOM < held
        zeta = _descend(tl.load(candidates + row * parts * ROOM + place, mask=known, other=0.0), zeta)
        step = tl.where(tl.max(found, 0) > ROOM, 0, STEPS)
        while step < STEPS:
            total, number = 0.0, 1.0
            for start in range(0, classes, BLOCK):
                columns = start + tl.arange(0, BLOCK)
                z = _others(student, row, student_stride, columns, width, label)
                zt = _others(teacher, row, teacher_stride, columns, width, label)
                u = _difference(z, zt, most, most_t, ratio, temperature)
                total += tl.sum(tl.where(u < zeta, u, 0.0), 0)
                number += tl.sum((u < zeta).to(tl.float32), 0)
            step = tl.where(total / number < zeta, step + 1, STEPS)
            zeta = tl.where(total / number < zeta, total / number, zeta)
        tl.store(zetas + row, zeta)
