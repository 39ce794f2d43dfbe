"""What a loss means: where it is zero, what it does with the teacher, its gradient, and what it does not see."""

from collections.abc import Callable
from dataclasses import replace

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
    Scene,
    Subject,
    call,
    close,
    failed,
    not_applicable,
    noted,
    ordinary_scene,
    passed,
    show,
)

STEP = 1e-2
"""Of differences of fourth order: right to 1e-8, and not drowned by a loss that computes in float32."""
GRADIENT_TOLERANCE = 1e-3
ORDER = [3, 0, 4, 1, 2]
SHIFTS = "torch.linspace(-3,3,8,dtype=torch.float64)[:,None]"
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


def check_zero(subject: Subject) -> LossFinding:
    """Where student and teacher agree nothing but the label term is left, and without one nothing at all."""
    name = "student = teacher"
    if not subject.uses_teacher:
        return not_applicable(name, "it has no teacher's term")
    scene = replace(ordinary_scene(), teacher=ordinary_scene().student)
    found = subject.evaluate(scene)
    rest, weight = _without_labels(scene, found.gradient) if subject.uses_labels else (found.gradient, 0.0)
    size = float(subject.ordinary.gradient.abs().max())
    left = float(rest.abs().max()) / size
    if left > TOLERANCE:
        if found.total < 0:
            command = subject.command(show(f"{subject.loss.text(teacher='s')}.sum().item()", '"at least 0"'))
            return failed(name, f"a value of {found.total:.4g}: below 0, where a divergence ends", command)
        if subject.uses_labels and not _label_term_is_cross_entropy(subject, scene):
            return not_applicable(name, "its label term is no multiple of cross-entropy, so it cannot be set apart")
        if not subject.uses_labels:
            gradient = subject.gradient_text(teacher="s.detach()")
            command = subject.command("s.requires_grad_()", show(f"{gradient}.abs().max().item()", "0.0"))
            return failed(name, f"the gradient is {left:.2g} of an ordinary one, not 0", command)
        return failed(name, f"beside label cross-entropy {left:.2g} of an ordinary gradient is left", _rest(subject))
    value = found.total - weight * float(_label_losses(scene).sum())
    if abs(value) <= TOLERANCE * max(abs(subject.ordinary.total), abs(found.total)):
        return passed(name, "nothing but the label term is left" if subject.uses_labels else "value and gradient are 0")
    return noted(
        name, f"the gradient is right, the value is {value:.4g} off 0: an offset such as the teacher's entropy"
    )


def _label_losses(scene: Scene) -> Float[Tensor, "N"]:
    return torch.nn.functional.cross_entropy(scene.student, scene.labels, reduction="none")


def _without_labels(scene: Scene, gradient: Float[Tensor, "N K"]) -> tuple[Float[Tensor, "N K"], float]:
    """What is left of a gradient after the best multiple of cross-entropy's, with any label smoothing."""
    p = scene.student.softmax(-1)
    label = p - torch.nn.functional.one_hot(scene.labels, CLASSES)
    columns = torch.stack([label.reshape(-1), (p - 1 / CLASSES).reshape(-1)], 1)
    weights = torch.linalg.lstsq(columns, gradient.double().reshape(-1, 1)).solution
    return gradient - (columns @ weights).reshape(gradient.shape), float(weights[0])


def _rest(subject: Subject) -> str:
    return subject.command(
        "s.requires_grad_()",
        f"a={subject.gradient_text(teacher='s.detach()')}",
        "p=s.detach().softmax(1)",
        "c=torch.stack([(p-torch.eye(5)[y]).reshape(-1),(p-0.2).reshape(-1)],1)",
        "b=a.double().reshape(-1,1)",
        show("(b-c@torch.linalg.lstsq(c,b).solution).abs().max().item()", "0.0"),
    )


def _label_term_is_cross_entropy(subject: Subject, scene: Scene) -> bool:
    """Other labels must move the gradient along the difference of the one-hot labels, the same multiple everywhere."""
    other = (scene.labels + 1) % CLASSES
    found = subject.evaluate(scene).gradient - subject.evaluate(replace(scene, labels=other)).gradient
    one_hot = torch.nn.functional.one_hot
    expected = (one_hot(other, CLASSES) - one_hot(scene.labels, CLASSES)).double()
    return close(found, expected * (found * expected).sum() / expected.square().sum())


def check_teacher_term(subject: Subject) -> LossFinding:
    """Which divergence from the teacher it is, by the direction of its gradient."""
    name, claimed = "teacher's term", subject.claims.divergence
    if not subject.uses_teacher:
        return (
            not_applicable(name, "it has none")
            if claimed is None
            else failed(name, f"you say {claimed}; another teacher does not change the gradient", _no_teacher(subject))
        )
    found = subject.teacher_difference()
    cosines = {key: _cosine(found, reference_difference(key, subject.loss.temperature)) for key in DIVERGENCES}
    best = max(cosines, key=lambda key: cosines[key])
    same = cosines[best] > 1 - TOLERANCE
    if claimed is None:
        return noted(
            name, best if same else f"none of {', '.join(DIVERGENCES)}; nearest {best}, cosine {cosines[best]:.2f}"
        )
    if same and best == claimed:
        return passed(name, f"{claimed}, as you say")
    command = subject.command(
        "s.requires_grad_()",
        f"a={subject.gradient_text()}-{subject.gradient_text(teacher='u')}",
        "from tpkd.check_loss.meaning import reference_difference as r",
        f'b=r("{claimed}",{subject.loss.temperature})',
        show("torch.cosine_similarity(a.reshape(-1),b.reshape(-1),0).item()", "1.0"),
    )
    return failed(name, f"you say {claimed}; found {best}, cosine {cosines[best]:.2f}", command)


def _no_teacher(subject: Subject) -> str:
    difference = f"({subject.gradient_text()}-{subject.gradient_text(teacher='u')})"
    return subject.command("s.requires_grad_()", show(f"{difference}.abs().max().item()", '"more"'))


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


def check_gradient(subject: Subject) -> LossFinding:
    """The gradient is the derivative of the value, by differences of the value."""
    name = "gradient"
    if subject.claims.prescribed:
        return not_applicable(name, "a prescribed direction, as you say")
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
        return passed(name, "the derivative of the value, by differences in float64")
    if said := _says_prescribed(subject):
        return noted(name, f"a prescribed direction by its own word: {said}")
    worst = int((found - expected).abs().argmax())
    row, column = divmod(worst, CLASSES)
    moved = {k: subject.loss.text(f"(s+({k})*z)[:3]", "t[:3]", "y[:3]") for k in (-2, -1, 1, 2)}
    difference = "+".join(f"({weight})*{moved[k]}.sum().item()" for k, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)))
    command = subject.command(
        f"z=torch.zeros_like(s); z[{row},{column}]={STEP}; s.requires_grad_()",
        show(
            f"{subject.gradient_text('s[:3]', 't[:3]', 'y[:3]')}[{row},{column}].item()", f"({difference})/{12 * STEP}"
        ),
    )
    off = float((found - expected).norm() / expected.norm().clamp(min=1e-30))
    return failed(name, f"{off:.2g} of its norm off the derivative of the value (or say --prescribed)", command)


def _says_prescribed(subject: Subject) -> str:
    """The words of a loss that refuses a second derivative because its gradient is none; empty for every other."""
    scene = ordinary_scene()
    student = scene.student.clone().requires_grad_()
    try:
        output = call(subject.loss, replace(scene, student=1 * student))
        torch.autograd.grad(output.sum(), student, create_graph=True)
    except RuntimeError as error:
        return str(error).splitlines()[0] if NOT_A_DERIVATIVE in str(error) else ""
    return ""


def check_permutation(subject: Subject) -> LossFinding:
    """Renaming the classes renames the gradient and changes nothing else."""
    name = "class names"
    scene = ordinary_scene()
    order = torch.tensor(ORDER)
    renamed = replace(scene.map(lambda z: z[:, order]), labels=order.argsort()[scene.labels])
    found = subject.evaluate(renamed)
    gradient = close(found.gradient, subject.ordinary.gradient[:, order])
    if gradient and close(torch.tensor(found.total), torch.tensor(subject.ordinary.total)):
        return passed(name, "classes in another order: the same loss, the gradient in that order")
    moved = subject.gradient_text("s[:,o]", "t[:,o]", "o.argsort()[y]")
    command = subject.command(
        f"o=torch.tensor({ORDER}); s.requires_grad_()",
        show(f"({moved}-{subject.gradient_text()}).abs().max().item()", "0.0"),
    )
    return failed(name, "classes in another order give another loss", command)


def check_shift(subject: Subject) -> LossFinding:
    """A constant added to all logits of a row does not change probabilities; matching logits sees it."""
    name = "constant in the logits"
    scene = ordinary_scene()
    shift = torch.linspace(-3, 3, SAMPLES, dtype=torch.float64).unsqueeze(-1)
    sees = []
    for side, moved in (
        ("student", replace(scene, student=scene.student + shift)),
        ("teacher", replace(scene, teacher=scene.teacher + shift)),
    ):
        if subject.loss.has(side) and not _same(subject.evaluate(moved), subject.ordinary):
            sees.append(f"the {side}'s")
    if not sees:
        return passed(name, "a constant added to a row of logits changes nothing")
    return noted(name, f"sees a constant added to {' and '.join(sees)} logits: it compares logits, not distributions")


def _same(found: Evaluation, expected: Evaluation) -> bool:
    return close(found.gradient, expected.gradient) and close(found.output, expected.output)


def check_runs(subject: Subject) -> LossFinding:
    """An ordinary batch goes through, and a gradient reaches the student."""
    name = "runs"
    try:
        found = subject.ordinary
    except RefusedError as error:
        call = subject.command("s.requires_grad_()", f"v={subject.loss.text(student='1*s')}", "v.sum().backward()")
        return failed(name, f"{error}", call)
    if not bool(found.gradient.ne(0).any()):  # NaN is not 0
        command = subject.command(
            "s.requires_grad_()", show(f"{subject.gradient_text()}.abs().max().item()", '"more than 0"')
        )
        return failed(
            name, "no gradient reaches the student; is the teacher first? say --argument student=NAME", command
        )
    return passed(name, f"an ordinary batch ({SAMPLES}, {CLASSES}) in float64")
