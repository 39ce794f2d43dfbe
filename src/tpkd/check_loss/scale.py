"""How large a loss is: what it reduces over, classes, temperature, accumulation, and the scale of a backward pass."""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from tpkd.check_loss.record import LossFinding
from tpkd.check_loss.subject import (
    CLASSES,
    SAMPLES,
    TOLERANCE,
    Evaluation,
    RefusedError,
    Subject,
    close,
    failed,
    not_applicable,
    noted,
    ordinary_scene,
    passed,
    scale_between,
    show,
)

REDUCTIONS = {
    "mean": "one number: the mean over samples",
    "sum": "one number: the sum over samples, which grows with the batch",
    "none": "one number a sample",
    "elements": "one number a logit",
    "unknown": "neither a mean nor a sum over samples: a batch repeated twice has a gradient of another direction",
}
IMPOSSIBLE = (-1e4, -600.0, -60.0)
"""Logits of no probability worth the name: the first at any usual temperature; of the others `exp` is a number in
float64 and in float32, for a loss that takes the logarithm of a softmax."""
LARGE_TEMPERATURES = (1000.0, 4000.0)
PARTS = (slice(0, 1), slice(1, 4), slice(4, 8))


def check_reduction(subject: Subject) -> LossFinding:
    """What comes out for a batch, against what the user says comes out."""
    name, found, claimed = "reduction", subject.reduction, subject.claims.reduction
    fits = claimed == found or (claimed, found) == ("elements", "mean")
    if claimed is None or fits:
        report = passed if fits or found == "mean" else noted
        return report(name, REDUCTIONS[found])
    twice = subject.loss.text("s.repeat(2,1)", "t.repeat(2,1)", "y.repeat(2)")
    ratio = {"mean": 1.0, "elements": 1.0, "sum": 2.0, "none": 2.0}[claimed]
    once = subject.loss.text()
    reproduction = (
        subject.command(f"v={once}", show("list(v.shape)", f"[{SAMPLES}]"))
        if claimed == "none"
        else subject.command(f"v={once}", f"w={twice}", show("w.sum().item()/v.sum().item()", f"{ratio}"))
    )
    return failed(name, f"you say {claimed}; found {REDUCTIONS[found]}", reproduction)


def check_reduction_argument(subject: Subject) -> LossFinding:
    """Every value of `reduction` that the loss accepts does what it is called."""
    name = "reduction argument"
    if not subject.loss.has("reduction"):
        return not_applicable(name, "it takes no reduction")
    found: dict[str, Evaluation] = {}
    for value in ("none", "sum", "mean", "batchmean"):
        try:
            found[value] = subject.evaluate(ordinary_scene(), reduction=value)
        except RefusedError:
            continue
    if "none" in found and found["none"].output.numel() < SAMPLES:
        call = subject.loss.text(reduction="none")
        command = subject.command(show(f"list({call}.shape)", f"[{SAMPLES}]"))
        return failed(name, "reduction='none' returns one number, not one a sample", command)
    if len(found) < 2:
        return not_applicable(name, f"it accepts {' and '.join(found) or 'none of the usual values'} alone")
    base = "sum" if "sum" in found else next(iter(found))
    elements = CLASSES if subject.claims.reduction == "elements" else 1
    divisors = {"none": 1, "sum": 1, "mean": SAMPLES * elements, "batchmean": SAMPLES}
    notes: list[str] = []
    for value, evaluation in found.items():
        expected = divisors[base] / divisors[value]
        factor = scale_between(evaluation.gradient, found[base].gradient)
        if factor is not None and abs(factor / expected - 1) <= TOLERANCE:
            continue
        one, other = subject.loss.text(reduction=value), subject.loss.text(reduction=base)
        size = "is not a multiple of" if factor is None else f"is {factor:.4g} of"
        if value == "mean" and factor is not None and abs(factor / expected * CLASSES - 1) <= TOLERANCE:
            notes.append("'mean' divides by the number of classes too, as torch's kl_div does")
            continue
        text = f"the gradient of reduction={value!r} {size} that of {base!r}, not {expected:.4g} ({SAMPLES} samples)"
        command = subject.command(show(f"{one}.sum().item()/{other}.sum().item()", f"{expected}"))
        return failed(name, text, command)
    if notes:
        return noted(name, notes[0])
    return passed(name, f"{', '.join(found)} agree with each other")


def check_number_of_classes(subject: Subject) -> LossFinding:
    """Classes to which nobody gives any probability change nothing; a mean over logits would be divided by them."""
    name = "number of classes"
    if not subject.uses_teacher:
        return not_applicable(name, "it has no teacher's term")
    try:
        logit, found = _widened_difference(subject)
    except RefusedError as error:
        return not_applicable(name, f"refuses {2 * CLASSES} classes: {error}")
    factor = scale_between(found, subject.teacher_difference())
    if factor is not None and abs(factor - 1) <= TOLERANCE:
        return passed(name, "summed over classes: classes without probability change nothing")
    if factor is None or abs(factor - 0.5) > TOLERANCE:
        return noted(name, "classes to which neither network gives any probability change the gradient of the others")
    if subject.claims.reduction == "elements":
        return passed(name, "a mean over classes too, as you say")
    wide_text = [subject.gradient_text("q(s)", f"q({teacher})") for teacher in "tu"]
    text = [subject.gradient_text(teacher=teacher) for teacher in "tu"]
    command = subject.command(
        "s.requires_grad_()",
        f"q=lambda z: torch.cat([z,0*z{logit:g}],1)",
        show(f"(({wide_text[0]}-{wide_text[1]}).norm()/({text[0]}-{text[1]}).norm()).item()", "1.0"),
    )
    return failed(
        name,
        "the teacher's term is divided by the number of classes: torch's 'mean' of kl_div and mse_loss is over "
        "elements (or say --reduction elements)",
        command,
    )


def _widened_difference(subject: Subject) -> tuple[float, Float[Tensor, "N K"]]:
    """The difference between teachers beside as many impossible classes, at the first logit that leaves it finite."""
    for logit in IMPOSSIBLE:
        scenes = [ordinary_scene(teacher).map(partial(_widen, logit=logit)) for teacher in (0, 1)]
        found = subject.teacher_difference(*scenes)[:, :CLASSES]
        if found.isfinite().all():
            break
    return logit, found


def _widen(logits: Float[Tensor, "N K"], logit: float) -> Float[Tensor, "N 2*K"]:
    return torch.cat([logits, torch.full_like(logits, logit)], 1)


def check_temperature(subject: Subject) -> LossFinding:
    """At large T the gradient of the teacher's term does not depend on T if T^2 is there, and falls as T^-2 if not."""
    name = "T squared"
    if not subject.loss.has("temperature"):
        return not_applicable(name, "it takes no temperature")
    if not subject.uses_teacher:
        return not_applicable(name, "it has no teacher's term")
    low, high = LARGE_TEMPERATURES
    try:
        norms = [float(subject.teacher_difference(temperature=T).norm()) for T in LARGE_TEMPERATURES]
    except RefusedError as error:
        return not_applicable(name, f"refuses a temperature of {low:g}: {error}")
    if not all(0 < norm < math.inf for norm in norms):
        return noted(name, f"the teacher's term at temperatures {low:g} and {high:g} has gradients of norm {norms}")
    power = math.log(norms[1] / norms[0]) / math.log(high / low)
    if abs(power) < 0.05:
        return passed(name, "T squared is there: at large T the gradient keeps its size")
    text = f"the gradient of the teacher's term goes as T^{power:.2g}"
    if not subject.claims.t_squared:
        return noted(name, f"{text}: left to the caller, as you say")
    if not -2.1 < power < -0.9:
        return noted(name, f"{text}: it does not keep its size, and a missing T squared is not why")
    differences = [
        f"({subject.gradient_text(teacher='t', temperature=T)}-{subject.gradient_text(teacher='u', temperature=T)})"
        for T in (high, low)
    ]
    command = subject.command(
        "s.requires_grad_()", show(f"({differences[0]}.norm()/{differences[1]}.norm()).item()", "1.0")
    )
    return failed(name, f"{text}: T squared is missing (or say --no-t-squared if the caller multiplies)", command)


def check_accumulation(subject: Subject) -> LossFinding:
    """The parts of a batch, each weighted by its size where the loss is a mean, add up to the whole."""
    name = "accumulation"
    if subject.claims.batchwise:
        return not_applicable(name, "a loss of the whole batch, as you say")
    mean = subject.reduction == "mean"
    weights = [(part.stop - part.start) / SAMPLES if mean else 1.0 for part in PARTS]
    calls = [f"[{part.start}:{part.stop}]" for part in PARTS]
    gradients = [subject.gradient_text(f"s{cut}", f"t{cut}", f"y{cut}") for cut in calls]
    total = "+".join(f"{weight}*{gradient}" for weight, gradient in zip(weights, gradients, strict=True))
    command = subject.command(
        "s.requires_grad_()", show(f"({total}-{subject.gradient_text()}).abs().max().item()", "0.0")
    )
    try:
        parts = [subject.evaluate(ordinary_scene().rows(part)) for part in PARTS]
    except RefusedError as error:
        return failed(name, f"refuses a batch of one, three or four samples: {error}", command)
    pairs = list(zip(weights, parts, strict=True))
    gradient = torch.cat([weight * part.gradient for weight, part in pairs])
    value = sum(weight * part.total for weight, part in pairs)
    if close(gradient, subject.ordinary.gradient) and close(torch.tensor(value), torch.tensor(subject.ordinary.total)):
        return passed(name, f"micro-batches of 1, 3 and 4 samples add up to {SAMPLES}")
    off = float((gradient - subject.ordinary.gradient).norm() / subject.ordinary.gradient.norm())
    text = f"micro-batches of 1, 3 and 4 samples do not add up to {SAMPLES}: the gradient is {off:.0%} off"
    return failed(name, f"{text} (or say --batchwise if it is a loss of the whole batch)", command)


def check_scaling(subject: Subject) -> LossFinding:
    """Half the loss has half the gradient: accumulation and loss scaling of mixed precision rest on it."""
    name = "scaled loss"
    scaled = subject.evaluate(ordinary_scene(), factor=1024.0)
    if close(scaled.gradient, 1024 * subject.ordinary.gradient):
        return passed(name, "1024 times the loss has 1024 times the gradient")
    call = subject.loss.text(student="1*s")
    gradients = [f"torch.autograd.grad({factor}*{call}.sum(),s)[0]" for factor in (1024, 1)]
    command = subject.command(
        "s.requires_grad_()", show(f"({gradients[0]}.norm()/{gradients[1]}.norm()).item()", "1024.0")
    )
    return failed(name, "1024 times the loss does not have 1024 times the gradient", command)
