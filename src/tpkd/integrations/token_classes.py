"""The classes of a language model are tokens: which of them student and teacher share, and the teacher on those alone.

Tables are padded to round numbers, not always to the same ones: behind the last token of the tokenizer there is none.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from tpkd.errors import InputError
from tpkd.geometry.inputs import computation_dtype
from tpkd.geometry.top_k import EMPTY, TopK


def width_of(model: nn.Module) -> int | None:
    """How many logits a language model returns per position; None where it does not say.

    Example:
        >>> model = nn.Module()
        >>> model.get_output_embeddings = lambda: nn.Linear(4, 7)
        >>> width_of(model), width_of(nn.Module())
        (7, None)
    """
    weight = getattr(getattr(model, "get_output_embeddings", lambda: None)(), "weight", None)
    if isinstance(weight, Tensor):
        return weight.shape[0]
    found = getattr(getattr(model, "config", None), "vocab_size", None)
    return found if isinstance(found, int) else None


def shared_tokens(student: int | None, teacher: int | None, true_vocab_size: int | None) -> int | None:
    """How many tokens both networks have; None where both have equally many and nobody says that some are padding.

    Raises:
        InputError: they have not, and `true_vocab_size` does not say how many are tokens, or says more than they have.

    Example:
        >>> shared_tokens(152064, 151936, 151665), shared_tokens(49152, 49152, None)
        (151665, None)
        >>> shared_tokens(152064, 151936, None)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: true_vocab_size: expected how many ... are tokens, because the student has 152064 ...
    """
    if true_vocab_size is None:
        if student is None or teacher is None or student == teacher:
            return None
        raise InputError(
            f"true_vocab_size: expected how many classes are tokens, because the student has {student} and the teacher "
            f"{teacher}: if both have one tokenizer and tables of different padding, pass its size (max id + 1), or "
            "both tokenizers (processing_class=, teacher_processing_class=); otherwise choose another teacher"
        )
    for name, width in (("student", student), ("teacher", teacher)):
        if width is not None and not 3 <= true_vocab_size <= width:
            raise InputError(f"true_vocab_size: expected from 3 to the {name}'s {width}, got {true_vocab_size}")
    return true_vocab_size


def on_student_tokens(
    teacher: Float[Tensor, "*positions teacher_K"] | TopK, num_classes: int, shared: int | None
) -> Float[Tensor, "*positions K"] | TopK:
    """The teacher's distribution on the tokens that are shared, over the student's classes.

    What it gives to other classes of its own is taken out, in proportion; the student's padding has probability zero.

    Args:
        teacher: logits, or a truncated teacher.
        num_classes: K, those of the student.
        shared: the first so many classes mean the same; None where all do.

    Example:
        >>> on_student_tokens(torch.tensor([[0.5, 0.25, 0.1, 0.15]]).log(), 3, 2).softmax(-1)
        tensor([[0.6667, 0.3333, 0.0000]])
        >>> kept = TopK(torch.tensor([[0.5, 0.2]]).log(), torch.tensor([[3, 0]]), torch.tensor([0.1]).log())
        >>> on_student_tokens(kept, 3, 2).log_probs.exp(), on_student_tokens(kept, 3, 2).indices
        (tensor([[0.0000, 0.4000]]), tensor([[-1,  0]]))
    """
    if shared is None:
        return teacher
    if isinstance(teacher, Tensor):
        return pad(teacher[..., :shared], (0, num_classes - shared), value=-torch.inf)
    padding = teacher.indices.long() >= shared
    wide = teacher.log_probs.to(computation_dtype(teacher.log_probs))
    given = torch.where(padding, wide, -torch.inf).exp().sum(-1)
    rescale = -torch.log1p(-given)

    def scaled(values: Tensor | None) -> Tensor | None:
        return None if values is None else values + rescale.to(values.dtype)

    return TopK(
        (teacher.log_probs + rescale.unsqueeze(-1).to(teacher.log_probs.dtype)).masked_fill(padding, -torch.inf),
        torch.where(padding, EMPTY, teacher.indices.long()),
        scaled(teacher.label_log_probs),
        scaled(teacher.rest_log_probs),
    )
