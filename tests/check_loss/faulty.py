"""Faults of public implementations and of their users' reports, re-typed to their essence; `sound` has each one mended.

Each is named after its fault; the docstring names the project.
"""

import torch
from torch import nn
from torch.nn import functional

from check_loss.sound import decoupled_terms, imitation


class ReductionIgnored(nn.Module):
    """mmrazor's DKDLoss: a legacy argument overrides `reduction`, so 'none' and 'mean' return the sum."""

    def __init__(self, tau=1.0, reduction="sum"):
        super().__init__()
        self.tau = tau
        self.reduction = reduction

    def forward(self, preds_S, preds_T, gt_labels):
        target, others = decoupled_terms(preds_S, preds_T, gt_labels, self.tau)
        return (target + others).sum()


def arguments_swapped(y_pred_student, y_pred_teacher, y_true, temp=20.0):
    """KD_Lib's probability shift: probabilities of teacher and student where log-student and teacher belong."""
    soft_student, soft_teacher = (y_pred_student / temp).softmax(1), (y_pred_teacher / temp).softmax(1)
    return temp**2 * functional.kl_div(soft_teacher, soft_student, reduction="batchmean") + functional.cross_entropy(
        y_pred_student, y_true
    )


def log_targets(y_pred_student, y_pred_teacher, y_true, temp=20.0):
    """KD_Lib's RCO: log-probabilities as targets without `log_target`."""
    log_student, log_teacher = (y_pred_student / temp).log_softmax(1), (y_pred_teacher / temp).log_softmax(1)
    return temp**2 * functional.kl_div(log_student, log_teacher, reduction="batchmean") + functional.cross_entropy(
        y_pred_student, y_true
    )


def squared_probabilities(y_pred_student, y_pred_teacher, y_true, temp=20.0):
    """KD_Lib's VanillaKD: a mean squared error of probabilities where KL is expected."""
    soft_student, soft_teacher = (y_pred_student / temp).softmax(1), (y_pred_teacher / temp).softmax(1)
    return temp**2 * functional.mse_loss(soft_teacher, soft_student) + functional.cross_entropy(y_pred_student, y_true)


def log_of_softmax(logits_student, logits_teacher, target, alpha, beta, temperature):
    """mdistiller's DKD: the log of summed softmax outputs, and the label masked by subtracting 1000."""
    label = functional.one_hot(target, logits_student.shape[1]).to(logits_student.dtype)

    def halves(logits):
        p = (logits / temperature).softmax(1)
        return torch.stack([(p * label).sum(1), (p * (1 - label)).sum(1)], 1)

    first = functional.kl_div(halves(logits_student).log(), halves(logits_teacher), reduction="sum")
    student, teacher = logits_student / temperature - 1000 * label, logits_teacher / temperature - 1000 * label
    second = functional.kl_div(student.log_softmax(1), teacher.softmax(1), reduction="sum")
    return (alpha * first + beta * second) * temperature**2 / len(target)


class ConstantWhenAllIgnored(nn.Module):
    """torchtune's KL losses: a new tensor without a graph when every label is ignored."""

    def __init__(self, ignore_index=-100):
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, student_logits, teacher_logits, labels):
        valid = labels != self.ignore_index
        if not valid.any():
            return torch.tensor(0.0)
        return (imitation(student_logits, teacher_logits) * valid).sum() / valid.sum()


def alpha_decides(student_logits, teacher_logits, targets, temperature=4.0, alpha=None):
    """torchdistill's KDLoss: fails with its own default, and forgets T^2 when alpha is 0."""
    beta = 1 - alpha
    log_student, soft_teacher = (student_logits / temperature).log_softmax(1), (teacher_logits / temperature).softmax(1)
    soft_loss = functional.kl_div(log_student, soft_teacher, reduction="batchmean")
    if alpha is None or alpha == 0:
        return soft_loss
    return alpha * functional.cross_entropy(student_logits, targets) + beta * temperature**2 * soft_loss


class MeanOverClasses(nn.Module):
    """modelopt's LogitsDistillationLoss: its default 'mean' is kl_div's, divided by the number of classes."""

    def __init__(self, temperature=1.0, reduction="mean"):
        super().__init__()
        self.temperature, self.reduction = temperature, reduction

    def forward(self, logits_s, logits_t):
        log_student, soft_teacher = (
            (logits_s / self.temperature).log_softmax(-1),
            (logits_t / self.temperature).softmax(-1),
        )
        loss = functional.kl_div(log_student, soft_teacher, reduction=self.reduction)
        return self.temperature**2 * (loss.sum(-1) if self.reduction == "none" else loss)


def mean_of_logs(student_logits, teacher_logits, labels):
    """A mean over elements from the logarithm of a softmax, which no class may be too unlikely for: cls_KD#13."""
    return functional.kl_div(student_logits.softmax(1).log(), teacher_logits.softmax(1), reduction="mean")


def mean_of_float_logs(student_logits, teacher_logits, labels):
    """The same in float32, whatever comes in."""
    return mean_of_logs(student_logits.float(), teacher_logits.float(), labels)


def mask_forgotten(student_logits, teacher_logits, labels, ignore_index=-100):
    """Liger-Kernel#974: `ignore_index` accepted and never used for the teacher's term."""
    return imitation(student_logits, teacher_logits).mean()


def nan_when_all_ignored(student_logits, teacher_logits, labels, ignore_index=-100):
    """A mean over nothing."""
    return imitation(student_logits, teacher_logits)[labels != ignore_index].mean()


def count_forgotten(student_logits, teacher_logits, labels, ignore_index=-100, num_items_in_batch=None):
    """The count of the effective batch accepted and not used: huggingface/trl#4719."""
    valid = labels != ignore_index
    return (imitation(student_logits, teacher_logits) * valid).sum() / valid.sum().clamp(min=1)


def no_t_squared(s, t, y, T=4.0):
    """The factor everybody forgets once."""
    return imitation(s / T, t / T).mean() + functional.cross_entropy(s, y)


def one_side_softened(s, t, y, T=4.0):
    """The temperature divides the student alone."""
    return T**2 * imitation(s / T, t).mean() + functional.cross_entropy(s, y)


def product_of_means(student_logits, teacher_logits, labels):
    """DeepKD's release: the mean of 1 - tau times the mean of the non-target term, instead of the mean of products."""
    target, others = decoupled_terms(student_logits, teacher_logits, labels, 1.0)
    tau = teacher_logits.softmax(1).gather(1, labels[:, None])
    return target.mean() + (1 - tau).mean() * others.mean()


def overwrites(student_logits, teacher_logits):
    """Softens the teacher in place: the next user of its logits gets others."""
    teacher_logits /= 2.0
    return 4 * imitation(student_logits / 2, teacher_logits).mean()


class _WithoutScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student, teacher):
        ctx.save_for_backward(student.softmax(1) - teacher.softmax(1))
        return imitation(student, teacher).mean()

    @staticmethod
    def backward(ctx, grad_output):
        (difference,) = ctx.saved_tensors
        return difference / len(difference), None


def scale_forgotten(student_logits, teacher_logits):
    """A backward pass of its own that does not multiply by what comes from above."""
    return _WithoutScale.apply(student_logits, teacher_logits)


def gradient_off(student_logits, teacher_logits):
    """The right value, and one per cent too much gradient."""
    loss = imitation(student_logits, teacher_logits).mean()
    return loss.detach() + 1.01 * (loss - loss.detach())


def detached_student(student_logits, teacher_logits):
    """The gradient stops at the wrong network."""
    return imitation(student_logits.detach(), teacher_logits).mean()


def needs_contiguous(student_logits, teacher_logits):
    """`view` where `reshape` belongs."""
    flat = student_logits.view(-1) - teacher_logits.view(-1)
    return imitation(flat.view_as(student_logits) + teacher_logits, teacher_logits).mean()


def first_class_counts_twice(student_logits, teacher_logits):
    """Something with an index that is not the label's."""
    extra = (student_logits.log_softmax(1) - teacher_logits.log_softmax(1))[:, 0].square()
    return (imitation(student_logits, teacher_logits) + extra).mean()


def two_classes_undefined(student_logits, teacher_logits, labels):
    """mdistiller#60: something about the incorrect classes that needs two of them, here degrees of freedom."""
    freedom = torch.tensor(student_logits.shape[1] - 2.0)
    return (imitation(student_logits, teacher_logits) * freedom / freedom).mean()
