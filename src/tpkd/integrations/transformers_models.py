"""What kind of network a Trainer trains: the network inside its wrappers, and what its labels mean."""

import inspect
from typing import Literal

from torch import nn

from tpkd.errors import InputError, extra

with extra("text"):
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )

LanguageKind = Literal["causal", "masked"]

_DO_NOT_SHIFT = frozenset(
    {
        "BartForCausalLM",
        "BigBirdPegasusForCausalLM",
        "BlenderbotForCausalLM",
        "BlenderbotSmallForCausalLM",
        "CpmAntForCausalLM",
        "Gemma4AssistantForCausalLM",
        "Gemma4UnifiedAssistantForCausalLM",
        "MBartForCausalLM",
        "MarianForCausalLM",
        "MvpForCausalLM",
        "PLBartForCausalLM",
        "PegasusForCausalLM",
        "ProphetNetForCausalLM",
        "TrOCRForCausalLM",
        "WhisperForCausalLM",
        "XLMWithLMHeadModel",
        "XLNetLMHeadModel",
    }
)
"""Networks that predict next tokens, and whose own loss leaves the shift of the labels to the user (transformers 5.22).
To shift what a user has shifted already would train a network to predict the token after the next."""


def base_model_of(model: nn.Module) -> nn.Module:
    """The network itself, inside a compiled module and the adapters of PEFT.

    Example:
        >>> model = nn.Linear(2, 3)
        >>> base_model_of(model) is model
        True
    """
    model = getattr(model, "_orig_mod", model)
    if hasattr(model, "peft_config") and callable(unwrap := getattr(model, "get_base_model", None)):
        return base_model_of(unwrap())
    return model


def language_kind(model: nn.Module, *, loss_shifts_labels: bool = False) -> LanguageKind | None:
    """Whether the labels of a network are next tokens, masked tokens, or no tokens at all.

    Args:
        model: the network, in whatever wrappers.
        loss_shifts_labels: what a Trainer found out about its own loss.

    Raises:
        InputError: it predicts next tokens, and its own loss does not shift labels; or it reads one text and writes
            another, and would make what its decoder reads from the labels.

    Example:
        >>> from transformers import GPT2LMHeadModel, GPT2Config
        >>> language_kind(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1))), language_kind(nn.Linear(2, 3))
        ('causal', None)
    """
    name = type(base_model_of(model)).__name__
    if name in _DO_NOT_SHIFT:
        raise InputError(
            f"model: expected a network whose own loss shifts its labels, as LlamaForCausalLM does, found {name}, "
            "which leaves that to its user; a label would be shifted twice"
        )
    if name in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values():
        raise InputError(
            f"model: expected a classifier, or a causal or masked language model, found {name}, whose decoder reads "
            "the labels; sequences to sequences are not served"
        )
    # By name too: the Trainer itself does not tell it of models like GPT2LMHeadModel.
    if loss_shifts_labels or name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        return "causal"
    return "masked" if name in MODEL_FOR_MASKED_LM_MAPPING_NAMES.values() else None


def named_inputs(model: nn.Module) -> frozenset[str]:
    """What a network's forward calls by name, but for the labels; nothing where it names nothing.

    Example:
        >>> sorted(named_inputs(nn.Bilinear(2, 2, 2)))
        ['input1', 'input2']
    """
    forward = base_model_of(model).forward
    return frozenset(inspect.signature(forward).parameters) - variadic_inputs(model) - {"labels"}


def variadic_inputs(model: nn.Module) -> frozenset[str]:
    """The names of `*args` and `**kwargs` in a network's forward, which are not columns.

    Example:
        >>> variadic_inputs(nn.Linear(2, 3))
        frozenset()
    """
    forwards = (model.forward, base_model_of(model).forward)
    parameters = (parameter for forward in forwards for parameter in inspect.signature(forward).parameters.values())
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in variadic)
