"""A step of a language model from the features of its head beside the step from its logits: memory, time, share.

`python -m benchmarks.language` measures alone. The student is a Llama of 49,152 classes with random weights, the
teacher the top 64 classes of random log-probabilities, as a token cache has them, or a network that is asked for them.
"""

from collections.abc import Callable

import torch
from benchmarks.memory import held_and_peak_bytes
from benchmarks.timing import interleaved_seconds, paired_ratio
from torch import Tensor
from torch.nn.functional import linear
from transformers import LlamaConfig, LlamaForCausalLM

from tpkd.geometry.top_k import TopK
from tpkd.integrations.output_head import feature_loss, feature_top_k, head_computes
from tpkd.objectives.tpkd import TPKD
from tpkd.teacher.cache.truncation import truncate

CLASSES, KEPT = 49_152, 64
LENGTHS = (1024, 2048, 8192)
MOST_BYTES, MOST_GROWTH, MOST_TIME = 90e6, 1.05, 1.1
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 1}
"""So that memory is that of the classes."""
THIRD = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 10, "num_attention_heads": 9}
"""SmolLM2-135M with a third of its layers."""


def student(shape: dict[str, int], *, tied: bool) -> LlamaForCausalLM:
    """A network with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=CLASSES,
        num_key_value_heads=shape["num_attention_heads"],
        tie_word_embeddings=tied,
        max_position_embeddings=max(LENGTHS),
        **shape,
    )
    return LlamaForCausalLM(config)


def batch(rows: int, length: int) -> tuple[Tensor, Tensor, TopK]:
    """Tokens, their targets, and the truncated teacher of every position; one answer for all of them."""
    generator = torch.Generator().manual_seed(rows * length)
    tokens = torch.randint(CLASSES, (rows, length), generator=generator)
    targets = torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=-100)
    answer = truncate(2 * torch.randn(1, CLASSES, generator=generator), torch.tensor([0]), KEPT)
    answers = answer.map(lambda values: values.expand(rows * length, *values.shape[1:]).contiguous())
    return tokens, targets, answers.map(lambda values: values.unflatten(0, (rows, length)))


def from_features(model: LlamaForCausalLM, tokens: Tensor, targets: Tensor, teacher: TopK) -> Tensor:
    """The loss as `linear_head=True` computes it."""
    head = model.lm_head
    with head_computes(head, lambda features: feature_loss(TPKD(), features, head, teacher, targets, None)):
        return model(input_ids=tokens, use_cache=False).logits


def from_network(teacher: LlamaForCausalLM) -> Callable[..., Tensor]:
    """The loss as `linear_head=True` computes it with the largest classes of this network, which is asked first."""
    teacher.requires_grad_(False)

    def loss(model: LlamaForCausalLM, tokens: Tensor, targets: Tensor, _: TopK) -> Tensor:
        found: list[TopK] = []

        def keep(features: Tensor) -> Tensor:
            found.append(feature_top_k(features, teacher.lm_head, targets, KEPT))
            return features[:, :1]

        with torch.no_grad(), head_computes(teacher.lm_head, keep):
            teacher(input_ids=tokens, use_cache=False)
        return from_features(model, tokens, targets, found[0])

    return loss


def from_logits(model: LlamaForCausalLM, tokens: Tensor, targets: Tensor, teacher: TopK) -> Tensor:
    """The loss of logits that are held whole."""
    logits = model(input_ids=tokens, use_cache=False).logits
    return TPKD()(logits.movedim(-1, 1), teacher, targets)


def without_loss(model: LlamaForCausalLM, tokens: Tensor, *_: object) -> Tensor:
    """What a step costs without head and loss."""
    return model.model(input_ids=tokens, use_cache=False).last_hidden_state.sum()


def bytes_beyond(length: int, loss: Callable[..., Tensor] = from_features, *, tied: bool = False) -> int:
    """The most that a step holds beyond parameters, gradients, activations and the batch itself.

    Two moments count: the end of the forward pass, when all activations and the gradients of features and head exist,
    and the end of the backward pass, when all gradients do.
    """
    model = student(SMALL, tied=tied)
    given = batch(1, length)
    table = 4 * model.lm_head.weight.numel()
    features = 4 * length * model.config.hidden_size
    kept: list[Tensor] = []
    activations, _ = held_and_peak_bytes(lambda: kept.append(without_loss(model, *given)))
    kept.clear()
    _, forward = held_and_peak_bytes(lambda: kept.append(loss(model, *given)))
    kept.clear()

    def step(loss: Callable[..., Tensor]) -> Callable[[], None]:
        def call() -> None:
            model.zero_grad(set_to_none=True)
            loss(model, *given).backward()

        return call

    _, bare = held_and_peak_bytes(step(without_loss))
    model.zero_grad(set_to_none=True)
    _, whole = held_and_peak_bytes(step(loss))
    # The gradient of a tied table exists without the head, too.
    return max(forward - activations - table, whole - bare - (0 if tied else table)) - features


def special_rows(length: int) -> list[tuple[str, float, float]]:
    """(what, measured, most) of memory beside a network as a teacher, and where the head is the table of embeddings."""
    online = bytes_beyond(length, from_network(student(SMALL, tied=False)))
    shared, table = bytes_beyond(length, tied=True), 4 * CLASSES * SMALL["hidden_size"]
    what = "language model, MB beyond activations and gradients"
    return [
        (f"{what}, network as teacher with top_k=64, {length:,} positions", online / 1e6, MOST_BYTES / 1e6),
        (f"{what}, tied head, {length:,} positions", shared / 1e6, (MOST_BYTES + table) / 1e6),
    ]


def rows(seconds: float) -> list[tuple[str, float, float]]:
    """(what, measured, most) of memory and time."""
    beyond = {length: bytes_beyond(length) for length in LENGTHS}
    growth = max(beyond.values()) / min(beyond.values())
    found = [
        (f"language model, MB beyond activations and gradients, {length:,} positions", value / 1e6, MOST_BYTES / 1e6)
        for length, value in beyond.items()
    ]
    found.append(("language model, growth of that over these lengths", growth, MOST_GROWTH))
    found += special_rows(2048)
    model, given = student(THIRD, tied=True), batch(2, 256)
    features = model.model(input_ids=given[0], use_cache=False).last_hidden_state.detach().requires_grad_()
    head, targets, teacher = model.lm_head, given[1], given[2]

    def by_features() -> None:
        feature_loss(TPKD(), features, head, teacher, targets, None).backward()

    def by_logits() -> None:
        TPKD()(linear(features, head.weight).movedim(-1, 1), teacher, targets).backward()

    ratio = paired_ratio(by_features, by_logits, pairs=max(4, int(4 * seconds)))
    found.append(("language model, head and loss, time from features / from logits", ratio, MOST_TIME))

    def timed(loss: Callable[..., Tensor]) -> Callable[[], None]:
        def call() -> None:
            model.zero_grad(set_to_none=True)
            loss(model, *given).backward()

        return call

    calls = {"features": timed(from_features), "logits": timed(from_logits), "bare": timed(without_loss)}
    times = interleaved_seconds(calls, seconds=8 * seconds, least=3)
    found.append(("language model, a step, time from features / from logits", times["features"] / times["logits"], 1.1))
    share = 1 - times["bare"] / times["features"]
    found.append(("language model, share of head and loss in a step of 512 tokens, 10 layers", share, 1.0))
    return found


if __name__ == "__main__":
    for what, measured, most in rows(1.0):
        print(f"{what}: {measured:.4g} (at most {most:g})", flush=True)
