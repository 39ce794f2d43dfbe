"""The losses of `faulty` without their faults, textbook losses, and our objectives as functions of three tensors."""

import torch
from torch import nn
from torch.nn import functional

from tpkd.objectives import Batch, create, names, top_k_tpkd_loss


def imitation(student, teacher):
    """KL(teacher || student) of each row."""
    log_t = teacher.log_softmax(1)
    return (log_t.exp() * (log_t - student.log_softmax(1))).sum(1)


def decoupled_terms(student, teacher, labels, temperature):
    """DKD's two terms of each row, each times T^2."""
    label = functional.one_hot(labels, student.shape[1]).bool()

    def parts(logits):
        log_p = (logits / temperature).log_softmax(1)
        others = log_p.masked_fill(label, -torch.inf)
        rest = others.logsumexp(1, keepdim=True)
        return torch.cat([log_p[label][:, None], rest], 1), (others - rest).masked_fill(label, 0.0)

    (pair, conditional), (t_pair, t_conditional) = parts(student), parts(teacher)
    first = (t_pair.exp() * (t_pair - pair)).sum(1)
    second = (t_conditional.exp() * (t_conditional - conditional)).sum(1)
    return temperature**2 * first, temperature**2 * second


class ReductionIgnored(nn.Module):
    def __init__(self, tau=1.0, reduction="sum"):
        super().__init__()
        self.tau, self.reduction = tau, reduction

    def forward(self, preds_S, preds_T, gt_labels):
        target, others = decoupled_terms(preds_S, preds_T, gt_labels, self.tau)
        return {"none": lambda rows: rows, "sum": torch.sum, "mean": torch.mean}[self.reduction](target + others)


def arguments_swapped(y_pred_student, y_pred_teacher, y_true, temp=20.0):
    return temp**2 * imitation(y_pred_student / temp, y_pred_teacher / temp).mean() + functional.cross_entropy(
        y_pred_student, y_true
    )


log_targets = squared_probabilities = arguments_swapped


def log_of_softmax(logits_student, logits_teacher, target, alpha, beta, temperature):
    first, second = decoupled_terms(logits_student.float(), logits_teacher.float(), target, temperature)
    return (alpha * first + beta * second).mean()


class ConstantWhenAllIgnored(nn.Module):
    def __init__(self, ignore_index=-100):
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, student_logits, teacher_logits, labels):
        valid = labels != self.ignore_index
        return (imitation(student_logits, teacher_logits) * valid).sum() / valid.sum().clamp(min=1)


def alpha_decides(student_logits, teacher_logits, targets, temperature=4.0, alpha=0.5):
    soft = temperature**2 * imitation(student_logits / temperature, teacher_logits / temperature).mean()
    return alpha * functional.cross_entropy(student_logits, targets) + (1 - alpha) * soft


class MeanOverClasses(nn.Module):
    def __init__(self, temperature=1.0, reduction="mean"):
        super().__init__()
        self.temperature, self.reduction = temperature, reduction

    def forward(self, logits_s, logits_t):
        rows = self.temperature**2 * imitation(logits_s / self.temperature, logits_t / self.temperature)
        return {"none": lambda rows: rows, "sum": torch.sum, "mean": torch.mean}[self.reduction](rows)


def mean_of_logs(student_logits, teacher_logits, labels):
    return imitation(student_logits, teacher_logits).mean()


mean_of_float_logs = mean_of_logs


def mask_forgotten(student_logits, teacher_logits, labels, ignore_index=-100):
    valid = labels != ignore_index
    return (imitation(student_logits, teacher_logits) * valid).sum() / valid.sum().clamp(min=1)


nan_when_all_ignored = mask_forgotten


def count_forgotten(student_logits, teacher_logits, labels, ignore_index=-100, num_items_in_batch=None):
    valid = labels != ignore_index
    count = valid.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
    return (imitation(student_logits, teacher_logits) * valid).sum() / count


def no_t_squared(s, t, y, T=4.0):
    return T**2 * imitation(s / T, t / T).mean() + functional.cross_entropy(s, y)


one_side_softened = no_t_squared


def product_of_means(student_logits, teacher_logits, labels):
    target, others = decoupled_terms(student_logits, teacher_logits, labels, 1.0)
    tau = teacher_logits.softmax(1).gather(1, labels[:, None]).squeeze(1)
    return (target + (1 - tau) * others).mean()


def overwrites(student_logits, teacher_logits):
    return 4 * imitation(student_logits / 2, teacher_logits / 2).mean()


def scale_forgotten(student_logits, teacher_logits):
    return imitation(student_logits, teacher_logits).mean()


gradient_off = detached_student = needs_contiguous = first_class_counts_twice = scale_forgotten


def two_classes_undefined(student_logits, teacher_logits, labels):
    return imitation(student_logits, teacher_logits).mean()


# Textbook losses: nothing to find, whatever they choose.


def textbook(student_logits, teacher_logits, labels, T=4.0, alpha=0.5):
    """Hinton's loss as it stands in every tutorial."""
    kd = (
        functional.kl_div((student_logits / T).log_softmax(1), (teacher_logits / T).softmax(1), reduction="batchmean")
        * T
        * T
    )
    return alpha * kd + (1 - alpha) * functional.cross_entropy(student_logits, labels)


def smoothed(outputs, labels, teacher_outputs):
    """With label smoothing, and labels before the teacher."""
    return imitation(outputs, teacher_outputs).mean() + functional.cross_entropy(outputs, labels, label_smoothing=0.1)


def soft_cross_entropy(logits_S, logits_T):
    """Right in its gradient, offset by the teacher's entropy in its value."""
    return -(logits_T.softmax(-1) * logits_S.log_softmax(-1)).sum(-1).mean()


def summed(student, teacher):
    return imitation(student, teacher).sum()


def one_a_sample(student, teacher):
    return imitation(student, teacher)


def reverse(student, teacher):
    return imitation(teacher, student).mean()


def logit_matching(z_s, z_t):
    return (z_s - z_t).square().sum(1).mean()


def relational(student_logits, teacher_logits):
    """Correlations between samples: a loss of the whole batch."""

    def similarities(logits):
        return functional.normalize(logits.softmax(1), dim=1) @ functional.normalize(logits.softmax(1), dim=1).T

    return (similarities(student_logits) - similarities(teacher_logits)).square().mean()


def noisy(student_logits, teacher_logits):
    return imitation(student_logits, teacher_logits + 0.1 * torch.randn(teacher_logits.shape)).mean()


class Remembering(nn.Module):
    """Weighs the batch by how many came before it."""

    def __init__(self):
        super().__init__()
        self.batches = 0

    def forward(self, student_logits, teacher_logits):
        self.batches += 1
        return self.batches * imitation(student_logits, teacher_logits).mean()


def objective_truncated_tpkd(
    student_logits, teacher_logits, labels, ignore_index=-100, reduction="mean", num_items=None
):
    """`top_k_tpkd_loss` of a teacher of which two classes were kept."""
    axis = 0 if student_logits.ndim == 1 else 1
    log_probs = teacher_logits.log_softmax(axis).movedim(axis, -1)
    top = log_probs.topk(2)
    at_label = labels.clamp(0, log_probs.shape[-1] - 1).unsqueeze(-1)
    return top_k_tpkd_loss(
        student_logits.movedim(axis, -1),
        top.values,
        top.indices,
        labels,
        label_log_probs=log_probs.gather(-1, at_label).squeeze(-1),
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
    )


# Our objectives as functions, for those whose needs a function of three tensors can serve.


def objective(name, **settings):
    built = create(name, **settings)

    def loss(student_logits, teacher_logits, labels, ignore_index=-100, num_items=None):
        batch = Batch(
            student_logits=student_logits,
            teacher_logits=teacher_logits,
            labels=labels,
            epoch=3,
            num_epochs=100,
            num_items=num_items,
        )
        return torch.stack(list(built.losses(batch).values())).sum()

    return loss


for _name in names():
    if create(_name).needs <= {"labels", "teacher_logits", "epoch"}:
        globals()[f"objective_{_name.replace('-', '_')}"] = objective(_name)
