"""How large a loss is: what it reduces over, classes, temperature, accumulation, and the scale of a backward pass."""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from tpkd.check_loss.check import Verdict, check, failed, not_applicable, noted, passed
from tpkd.check_loss.scene import CLASSES, SAMPLES, TOLERANCE, close, ordinary_scene, scale_between
from tpkd.check_loss.subject import Evaluation, RefusedError, Subject

REDUCTIONS = {
    "mean": "one number: the mean over samples",
    "sum": "one number: the sum over samples, which grows with the batch",
    "none": "one number per sample",
    "elements": "one number per logit",
    "unknown": "neither a mean nor a sum over samples: a batch repeated twice has a gradient of another direction",
}
IMPOSSIBLE = (-1e4, -600.0, -60.0)
"""Logits of no probability worth the name: the first at any usual temperature; of the others `exp` is a number in
float64 and in float32, for a loss that takes the logarithm of a softmax."""
LARGE_TEMPERATURES = (1000.0, 4000.0)
PARTS = (slice(0, 1), slice(1, 4), slice(4, 8))


@check("reduction")
def reduction(subject: Subject) -> Verdict:
    """What comes out for a batch, against what the user says comes out."""
    found, claimed = subject.reduction, subject.claims.reduction
    fits = claimed == found or (claimed, found) == ("elements", "mean")
    if claimed is None or fits:
        report = passed if fits or found == "mean" else noted
        return report(REDUCTIONS[found])
    once, twice = subject.loss.text(), subject.loss.text("s.repeat(2,1)", "t.repeat(2,1)", "y.repeat(2)")
    if claimed == "none":
        reproduction = subject.command(f"v={once}", show=("list(v.shape)", f"[{SAMPLES}]"))
    else:
        ratio = ("w.sum().item()/v.sum().item()", "2.0" if claimed == "sum" else "1.0")
        reproduction = subject.command(f"v={once}", f"w={twice}", show=ratio)
    return failed(f"you say {claimed}; found {REDUCTIONS[found]}", reproduction)


@check("reduction argument", "reduction")
def reduction_argument(subject: Subject) -> Verdict:
    """Every value of `reduction` that the loss accepts does what it is called."""
    found: dict[str, Evaluation] = {}
    for value in ("none", "sum", "mean", "batchmean"):
        try:
            found[value] = subject.evaluate(ordinary_scene(), reduction=value)
        except RefusedError:
            continue
    if "none" in found and found["none"].output.numel() < SAMPLES:
        shape = f"list({subject.loss.text(reduction='none')}.shape)"
        command = subject.command(show=(shape, f"[{SAMPLES}]"))
        return failed("reduction='none' returns one number, not one per sample", command)
    if len(found) < 2:
        return not_applicable(f"it accepts {' and '.join(found) or 'none of the usual values'} alone")
    base = "sum" if "sum" in found else next(iter(found))
    elements = CLASSES if subject.claims.reduction == "elements" else 1
    divisors = {"none": 1, "sum": 1, "mean": SAMPLES * elements, "batchmean": SAMPLES}
    over_classes = False
    for value, evaluation in found.items():
        expected = divisors[base] / divisors[value]
        factor = scale_between(evaluation.gradient, found[base].gradient)
        if factor is not None and abs(factor / expected - 1) <= TOLERANCE:
            continue
        if value == "mean" and factor is not None and abs(factor / expected * CLASSES - 1) <= TOLERANCE:
            over_classes = True
            continue
        size = "is not a multiple of" if factor is None else f"is {factor:.4g} of"
        text = f"the gradient of reduction={value!r} {size} that of {base!r}, not {expected:.4g} ({SAMPLES} samples)"
        ratio = f"{subject.value_text(reduction=value)}/{subject.value_text(reduction=base)}"
        return failed(text, subject.command(show=(ratio, f"{expected}")))
    if over_classes:
        return noted("'mean' divides by the number of classes too, as torch's kl_div does")
    return passed(f"{', '.join(found)} agree with each other")


@check("number of classes", "teacher's term")
def number_of_classes(subject: Subject) -> Verdict:
    """Classes without any probability change nothing; a mean over logits would be divided by them."""
    try:
        logit, found = _widened_difference(subject)
    except RefusedError as error:
        return not_applicable(f"refuses {2 * CLASSES} classes: {error}")
    factor = scale_between(found, subject.teacher_difference())
    if factor is not None and abs(factor - 1) <= TOLERANCE:
        return passed("summed over classes: classes without probability change nothing")
    if factor is None or abs(factor - 0.5) > TOLERANCE:
        return noted("classes to which neither network gives any probability change the gradient of the others")
    if subject.claims.reduction == "elements":
        return passed("a mean over classes too, as you say")
    wide, narrow = subject.difference_text("q({})"), subject.difference_text()
    command = subject.command(
        "s.requires_grad_()",
        f"q=lambda z: torch.cat([z,0*z{logit:g}],1)",
        show=(f"({wide}.norm()/{narrow}.norm()).item()", "1.0"),
    )
    text = "the teacher's term is divided by the number of classes: torch's 'mean' of kl_div and mse_loss is over"
    return failed(f"{text} elements (or say --reduction elements)", command)


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


@check("T squared", "temperature", "teacher's term")
def temperature(subject: Subject) -> Verdict:
    """At large T the gradient of the teacher's term does not depend on T if T^2 is there, and falls as T^-2 if not."""
    low, high = LARGE_TEMPERATURES
    try:
        norms = [float(subject.teacher_difference(temperature=T).norm()) for T in LARGE_TEMPERATURES]
    except RefusedError as error:
        return not_applicable(f"refuses a temperature of {low:g}: {error}")
    if not all(0 < norm < math.inf for norm in norms):
        return noted(f"the teacher's term at temperatures {low:g} and {high:g} has gradients of norm {norms}")
    power = math.log(norms[1] / norms[0]) / math.log(high / low)
    if abs(power) < 0.05:
        return passed("T squared is there: at large T the gradient keeps its size")
    text = f"the gradient of the teacher's term goes as T^{power:.2g}"
    if not subject.claims.t_squared:
        return noted(f"{text}: left to the caller, as you say")
    if not -2.1 < power < -0.9:
        return noted(f"{text}: it does not keep its size, and a missing T squared is not why")
    above, below = (subject.difference_text(temperature=T) for T in (high, low))
    command = subject.command("s.requires_grad_()", show=(f"({above}.norm()/{below}.norm()).item()", "1.0"))
    return failed(f"{text}: T squared is missing (or say --no-t-squared if the caller multiplies)", command)


@check("accumulation", "samples")
def accumulation(subject: Subject) -> Verdict:
    """The parts of a batch, each weighted by its size where the loss is a mean, add up to the whole."""
    mean = subject.reduction == "mean"
    weights = [(part.stop - part.start) / SAMPLES if mean else 1.0 for part in PARTS]
    cuts = [f"[{part.start}:{part.stop}]" for part in PARTS]
    gradients = [subject.gradient_text(f"s{cut}", f"t{cut}", f"y{cut}") for cut in cuts]
    total = "+".join(f"{weight}*{gradient}" for weight, gradient in zip(weights, gradients, strict=True))
    difference = f"({total}-{subject.gradient_text()}).abs().max().item()"
    command = subject.command("s.requires_grad_()", show=(difference, "0.0"))
    try:
        parts = [subject.evaluate(ordinary_scene().rows(part)) for part in PARTS]
    except RefusedError as error:
        return failed(f"refuses a batch of one, three or four samples: {error}", command)
    pairs = list(zip(weights, parts, strict=True))
    gradient = torch.cat([weight * part.gradient for weight, part in pairs])
    value = sum(weight * part.total for weight, part in pairs)
    if close(gradient, subject.ordinary.gradient) and close(torch.tensor(value), torch.tensor(subject.ordinary.total)):
        return passed(f"micro-batches of 1, 3 and 4 samples add up to {SAMPLES}")
    off = float((gradient - subject.ordinary.gradient).norm() / subject.ordinary.gradient.norm())
    text = f"micro-batches of 1, 3 and 4 samples do not add up to {SAMPLES}: the gradient is {off:.0%} off"
    return failed(f"{text} (or say --batchwise if it is a loss of the whole batch)", command)


@check("scaled loss")
def scaling(subject: Subject) -> Verdict:
    """Half the loss has half the gradient: accumulation and loss scaling of mixed precision rest on it."""
    scaled = subject.evaluate(ordinary_scene(), factor=1024.0)
    if close(scaled.gradient, 1024 * subject.ordinary.gradient):
        return passed("1024 times the loss has 1024 times the gradient")
    value = f"{subject.loss.text(student='1*s')}.sum()"
    large, small = (f"torch.autograd.grad({factor}*{value},s)[0]" for factor in (1024, 1))
    command = subject.command("s.requires_grad_()", show=(f"({large}.norm()/{small}.norm()).item()", "1024.0"))
    return failed("1024 times the loss does not have 1024 times the gradient", command)
