"""What a teacher that never saw a mixed image is taken to say about it: the mixture of its answers to both images."""

import torch
from jaxtyping import Float
from torch import Tensor


def mixture_log_probs(
    own_logits: Float[Tensor, "batch K"], partner_logits: Float[Tensor, "batch K"], own_shares: Float[Tensor, "batch"]
) -> Float[Tensor, "batch K"]:
    """log(w t_a + (1 - w) t_b) of the distributions t_a and t_b of two teacher outputs, with w the own share.

    It is exact for the label of a mixed image, which is such a mixture too, and a guess for the teacher's answer: what
    the network would say about the mixed image itself, only a teacher that runs at every step can tell.

    Shapes: logits `(batch, K)`, shares `(batch,)` from 0 to 1; returns log-probabilities `(batch, K)`, in float32 for
    half-precision logits.

    Example:
        >>> own, partner = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.5, 0.5]]).log()
        >>> mixture_log_probs(own, partner, torch.tensor([0.75])).exp()
        tensor([[0.8000, 0.2000]])
    """
    dtype = torch.promote_types(own_logits.dtype, torch.float32)
    # In double precision, because what a share near one leaves is a small difference.
    shares = own_shares.to(own_logits.device, torch.float64).unsqueeze(-1)
    return torch.logaddexp(
        shares.log().to(dtype) + own_logits.to(dtype).log_softmax(-1),
        (1 - shares).log().to(dtype) + partner_logits.to(dtype).log_softmax(-1),
    )
