"""What a loss means: where it is zero, what it does with the teacher, its gradient, and what it does not see."""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from tpkd.check_loss.check import Verdict, check, failed, not_applicable, noted, passed
from tpkd.check_loss.scene import CLASSES, SAMPLES, TOLERANCE, Scene, close, ordinary_scene
from tpkd.check_loss.subject import RefusedError, Subject

STEP = 1e-2
"""Of differences of fourth order: right to 1e-8, and not drowned by a loss that computes in float32."""
GRADIENT_TOLERANCE = 1e-3
ORDER = [3, 0, 4, 1, 2]
NOT_A_DERIVATIVE = "not the derivative"
"""What a loss with a prescribed gradient says when it is asked for a second derivative."""

_Divergence = Callable[[Tensor, Tensor], Tensor]

DIVERGENCES: dict[str, _Divergence] = {
    "kl": lambda z, zt: (zt.softmax(-1) * (zt.log_softmax(-1) - z.log_softmax(-1))).sum(),
    "reverse-kl": lambda z, zt: (z.softmax(-1) * (z.log_softmax(-1) - zt.log_softmax(-1))).sum(),
    "jensen-shannon": lambda z, zt: _jensen_shannon(z.log_softmax(-1), zt.log_softmax(-1)),
    "mse-logits": lambda z, zt: (z - zt).square().sum(),
    "mse-probabilities": lambda z, zt: (z.softmax(-1) - zt.softmax(-1)).square().sum(),
}
"""Of softened logits z / T; sums over classes and samples."""


def _jensen_shannon(log_p: Tensor, log_t: Tensor) -> Tensor:
    middle = torch.logaddexp(log_p, log_t)
    return (log_p.exp() * (log_p - middle) + log_t.exp() * (log_t - middle)).sum()


@check("student = teacher", "teacher's term")
def agreement(subject: Subject) -> Verdict:
    """Where student and teacher agree nothing but the label term is left, and without one nothing at all."""
    scene = replace(ordinary_scene(), teacher=ordinary_scene().student)
    found = subject.evaluate(scene)
    rest, weight = _without_labels(scene, found.gradient) if subject.uses_labels else (found.gradient, 0.0)
    left = float(rest.abs().max()) / float(subject.ordinary.gradient.abs().max())
    if left > TOLERANCE:
        return _disagreement(subject, scene, found.total, left)
    value = found.total - weight * float(_label_losses(scene).sum())
    if abs(value) <= TOLERANCE * max(abs(subject.ordinary.total), abs(found.total)):
        return passed("nothing but the label term is left" if subject.uses_labels else "value and gradient are 0")
    return noted(f"the gradient is right, the value is {value:.4g} off 0: an offset such as the teacher's entropy")


def _disagreement(subject: Subject, scene: Scene, value: float, left: float) -> Verdict:
    if value < 0:
        command = subject.command(show=(subject.value_text(teacher="s"), '"at least 0"'))
        return failed(f"a value of {value:.4g}: below 0, where a divergence ends", command)
    gradient = subject.gradient_text(teacher="s.detach()")
    if not subject.uses_labels:
        command = subject.command("s.requires_grad_()", show=(f"{gradient}.abs().max().item()", "0.0"))
        return failed(f"the gradient is {left:.2g} of an ordinary one, not 0", command)
    if not _label_term_is_cross_entropy(subject, scene):
        return not_applicable("its label term is no multiple of cross-entropy, so it cannot be set apart")
    command = subject.command(
        "s.requires_grad_()",
        f"a={gradient}",
        "p=s.detach().softmax(1)",
        "c=torch.stack([(p-torch.eye(5)[y]).reshape(-1),(p-0.2).reshape(-1)],1)",
        "b=a.double().reshape(-1,1)",
        show=("(b-c@torch.linalg.lstsq(c,b).solution).abs().max().item()", "0.0"),
    )
    return failed(f"beside label cross-entropy {left:.2g} of an ordinary gradient is left", command)


def _label_losses(scene: Scene) -> Float[Tensor, "N"]:
    return torch.nn.functional.cross_entropy(scene.student, scene.labels, reduction="none")


def _without_labels(scene: Scene, gradient: Float[Tensor, "N K"]) -> tuple[Float[Tensor, "N K"], float]:
    """What is left of a gradient after the best multiple of cross-entropy's, with any label smoothing."""
    p = scene.student.softmax(-1)
    label = p - torch.nn.functional.one_hot(scene.labels, CLASSES)
    columns = torch.stack([label.reshape(-1), (p - 1 / CLASSES).reshape(-1)], 1)
    weights = torch.linalg.lstsq(columns, gradient.double().reshape(-1, 1)).solution
    return gradient - (columns @ weights).reshape(gradient.shape), float(weights[0])


def _label_term_is_cross_entropy(subject: Subject, scene: Scene) -> bool:
    """Other labels must move the gradient along the difference of the one-hot labels, the same multiple everywhere."""
    other = (scene.labels + 1) % CLASSES
    found = subject.evaluate(scene).gradient - subject.evaluate(replace(scene, labels=other)).gradient
    one_hot = torch.nn.functional.one_hot
    expected = (one_hot(other, CLASSES) - one_hot(scene.labels, CLASSES)).double()
    return close(found, expected * (found * expected).sum() / expected.square().sum())


@check("teacher's term")
def teacher_term(subject: Subject) -> Verdict:
    """Which divergence from the teacher it is, by the direction of its gradient."""
    claimed, ours, others = subject.claims.divergence, subject.gradient_text(), subject.gradient_text(teacher="u")
    if not subject.uses_teacher:
        if claimed is None:
            return not_applicable("it has none")
        command = subject.command("s.requires_grad_()", show=(f"({ours}-{others}).abs().max().item()", '"more"'))
        return failed(f"you say {claimed}; another teacher does not change the gradient", command)
    found = subject.teacher_difference()
    cosines = {key: _cosine(found, reference_difference(key, subject.loss.temperature)) for key in DIVERGENCES}
    best = max(cosines, key=lambda key: cosines[key])
    same = cosines[best] > 1 - TOLERANCE
    if claimed is None:
        return noted(best if same else f"none of {', '.join(DIVERGENCES)}; nearest {best}, cosine {cosines[best]:.2f}")
    if same and best == claimed:
        return passed(f"{claimed}, as you say")
    command = subject.command(
        "s.requires_grad_()",
        f"a={ours}-{others}",
        "from tpkd.check_loss.meaning import reference_difference as r",
        f'b=r("{claimed}",{subject.loss.temperature})',
        show=("torch.cosine_similarity(a.reshape(-1),b.reshape(-1),0).item()", "1.0"),
    )
    return failed(f"you say {claimed}; found {best}, cosine {cosines[best]:.2f}", command)


def reference_difference(divergence: str, temperature: float) -> Float[Tensor, "N K"]:
    """What `Subject.teacher_difference` is for a divergence."""
    gradients = []
    for teacher in (0, 1):
        scene = ordinary_scene(teacher)
        student = scene.student.clone().requires_grad_()
        value = DIVERGENCES[divergence](student / temperature, scene.teacher / temperature)
        gradients.append(torch.autograd.grad(value, student)[0])
    return gradients[0] - gradients[1]


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a.double().reshape(-1), b.reshape(-1), 0))


@check("gradient", "derivative")
def gradient(subject: Subject) -> Verdict:
    """The gradient is the derivative of the value, by differences of the value."""
    scene = ordinary_scene().rows(slice(0, 3))
    found = subject.evaluate(scene).gradient.double()
    expected = torch.zeros_like(found)
    for index in range(found.numel()):
        offset = torch.zeros(found.numel(), dtype=torch.float64)
        offset[index] = STEP
        offset = offset.reshape(found.shape)
        values = [subject.evaluate(replace(scene, student=scene.student + k * offset)).total for k in (-2, -1, 1, 2)]
        expected.reshape(-1)[index] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * STEP)
    if close(found, expected, GRADIENT_TOLERANCE):
        return passed("the derivative of the value, by differences in float64")
    if said := _says_prescribed(subject):
        return noted(f"a prescribed direction by its own word: {said}")
    row, column = divmod(int((found - expected).abs().argmax()), CLASSES)
    moved = {k: subject.value_text(f"(s+({k})*z)[:3]", "t[:3]", "y[:3]") for k in (-2, -1, 1, 2)}
    difference = "+".join(f"({weight})*{moved[k]}" for k, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)))
    ours = f"{subject.gradient_text('s[:3]', 't[:3]', 'y[:3]')}[{row},{column}].item()"
    command = subject.command(
        f"z=torch.zeros_like(s); z[{row},{column}]={STEP}; s.requires_grad_()",
        show=(ours, f"({difference})/{12 * STEP}"),
    )
    off = float((found - expected).norm() / expected.norm().clamp(min=1e-30))
    return failed(f"{off:.2g} of its norm off the derivative of the value (or say --prescribed)", command)


def _says_prescribed(subject: Subject) -> str:
    """The message of a loss that refuses a second derivative because its gradient is prescribed; empty otherwise."""
    scene = ordinary_scene()
    student = scene.student.clone().requires_grad_()
    try:
        output = subject.call(replace(scene, student=1 * student))
        torch.autograd.grad(output.sum(), student, create_graph=True)
    except RuntimeError as error:
        return str(error).splitlines()[0] if NOT_A_DERIVATIVE in str(error) else ""
    return ""


@check("class names")
def permutation(subject: Subject) -> Verdict:
    """Renaming the classes renames the gradient and changes nothing else."""
    scene = ordinary_scene()
    order = torch.tensor(ORDER)
    found = subject.evaluate(replace(scene.map(lambda z: z[:, order]), labels=order.argsort()[scene.labels]))
    same = close(found.gradient, subject.ordinary.gradient[:, order])
    if same and close(torch.tensor(found.total), torch.tensor(subject.ordinary.total)):
        return passed("classes in another order: the same loss, the gradient in that order")
    moved = subject.gradient_text("s[:,o]", "t[:,o]", "o.argsort()[y]")
    command = subject.command(
        f"o=torch.tensor({ORDER}); s.requires_grad_()",
        show=(f"({moved}-{subject.gradient_text()}).abs().max().item()", "0.0"),
    )
    return failed("classes in another order give another loss", command)


@check("constant in the logits")
def shift(subject: Subject) -> Verdict:
    """A constant added to all logits of a row does not change probabilities; matching logits sees it."""
    scene, sees = ordinary_scene(), []
    constants = torch.linspace(-3, 3, SAMPLES, dtype=torch.float64).unsqueeze(-1)
    for side in ("student", "teacher"):
        moved = replace(scene, **{side: getattr(scene, side) + constants})
        if subject.loss.has(side):
            found, expected = subject.evaluate(moved), subject.ordinary
            if not (close(found.gradient, expected.gradient) and close(found.output, expected.output)):
                sees.append(f"the {side}'s")
    if not sees:
        return passed("a constant added to a row of logits changes nothing")
    return noted(f"sees a constant added to {' and '.join(sees)} logits: it compares logits, not distributions")


@check("runs")
def runs(subject: Subject) -> Verdict:
    """An ordinary batch goes through, and a gradient reaches the student."""
    try:
        found = subject.ordinary
    except RefusedError as error:
        value = f"v={subject.loss.text(student='1*s')}"
        return failed(f"{error}", subject.command("s.requires_grad_()", value, "v.sum().backward()"))
    if bool(found.gradient.ne(0).any()):  # NaN is not 0
        return passed(f"an ordinary batch ({SAMPLES}, {CLASSES}) in float64")
    largest = f"{subject.gradient_text()}.abs().max().item()"
    command = subject.command("s.requires_grad_()", show=(largest, '"more than 0"'))
    return failed("no gradient reaches the student; is the teacher first? say --argument student=NAME", command)
