"""How far each parameter is from the head, in layers: what a rate that falls from layer to layer goes by."""

from collections.abc import Collection, Iterator

from torch import nn

from tpkd.errors import InputError


def block_depths(network: nn.Module, head_names: Collection[str]) -> dict[str, int]:
    """The depth of every parameter by the network's blocks: 0 for the head, 1 for the last block, and so on.

    A block is a child of an outermost `ModuleList` or `Sequential`, in the order in which they were registered. What
    comes before the first block (a stem) and all other embeddings are one layer below it; what comes after the last (a
    pooler, a final norm) belongs to the head; what comes in between belongs to the block before it.

    Args:
        network: of any kind.
        head_names: parameters of its head, wherever they were registered.

    Raises:
        InputError: there are no blocks.

    Example:
        >>> blocks = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        >>> network = nn.ModuleDict({"stem": nn.Linear(2, 2), "blocks": blocks, "fc": nn.Linear(2, 3)})
        >>> {name: depth for name, depth in block_depths(network, ["fc.weight"]).items() if "weight" in name}
        {'stem.weight': 3, 'blocks.0.weight': 2, 'blocks.2.weight': 1, 'fc.weight': 0}
    """
    blocks = list(_blocks(network, ""))
    if not blocks:
        raise InputError("expected a network whose layers are in a list, found one whose layers cannot be told apart")
    embeddings = [f"{name}." for name, part in network.named_modules() if isinstance(part, nn.Embedding)]
    last, reached, layers = len(blocks) + 1, 0, {}
    for name, _ in network.named_parameters():
        inside = next((number for number, block in enumerate(blocks, 1) if name.startswith(block)), None)
        if inside is not None:
            reached = layers[name] = inside
        elif name in head_names:
            layers[name] = last
        elif name.startswith(tuple(embeddings)):
            layers[name] = 0
        else:
            layers[name] = last if reached == len(blocks) else reached
    return {name: last - layer for name, layer in layers.items()}


def _blocks(module: nn.Module, prefix: str) -> Iterator[str]:
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            for number, block in child.named_children():
                if any(True for _ in block.parameters()):
                    yield f"{prefix}{name}.{number}."
        else:
            yield from _blocks(child, f"{prefix}{name}.")
