"""How far a computed number may be from the true one, per dtype, with the reason."""

import torch

EXACT = {
    torch.float64: 1e-12,  # DESIGN's promise for float64; a few hundred roundings of numbers up to one
    torch.float32: 2e-6,  # the same count of roundings at 6e-8
    torch.float16: 2e-3,  # one rounding of the result to 10 bits
    torch.bfloat16: 1.6e-2,  # one rounding of the result to 7 bits
}
