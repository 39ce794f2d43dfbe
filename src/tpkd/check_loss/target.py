"""A third-party distillation loss, found by name and called by the names its author chose."""

import ast
import importlib
import inspect
import json
import os
import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from tpkd.errors import InputError, did_you_mean

TENSORS = ("student", "teacher", "labels")
SETTINGS = ("temperature", "reduction", "ignore_index", "num_items")
FORMS = ("logits", "log-probabilities", "probabilities")
TEMPERATURE = 4.0
"""For a loss whose temperature has no default."""

_PROBABILITIES = {"probs", "prob", "probabilities", "logprobs", "logprob"}
_LOGITS = {"logits", "logit", "preds", "pred", "out", "output", "outputs", "scores", "z", "y", "x", "p"}
_LOGITS |= _PROBABILITIES | {"log"}
_LONE_STUDENT = _LOGITS - {"y", "p", "log"} | {"input", "inputs", "predictions", "y_pred"}
_LABELS = {"labels", "label", "target", "targets", "y", "gt", "gt_label", "gt_labels", "ground_truth", "y_true"}
_AMBIGUOUS = {"target", "targets"}
_OTHER_THINGS = {"weight", "weights", "temperature", "temp", "tau", "mask", "bias", "hidden", "feature", "features"}
_OTHER_THINGS |= {"model", "module", "path", "io", "dict", "loss", "alpha", "beta", "label", "labels"}
_NUM_ITEMS = {"num_items", "num_items_in_batch"}


@dataclass(frozen=True)
class Loss:
    """A loss and how to call it; for a class the settings of its constructor come first."""

    origin: str
    target: Any
    names: dict[str, str | None]
    """The argument that takes each role; None: by position."""
    made_with: frozenset[str] | None
    """The constructor's arguments where the target is a class."""
    settings: dict[str, Any]
    defaults: dict[str, Any]
    """What the loss's own signature says about the roles that are settings."""
    output: str | None = None
    forms: dict[str, str] = field(default_factory=dict)

    @property
    def temperature(self) -> float:
        """The temperature in use, 1 where the loss has none."""
        found = self.setting("temperature")
        return float(found) if isinstance(found, int | float) else 1.0

    def setting(self, role: str) -> Any:
        """What a role is set to, or what the loss itself takes by default."""
        return self.settings.get(str(self.names.get(role)), self.defaults.get(role))

    def has(self, role: str) -> bool:
        """Whether the loss takes this."""
        return role in self.names

    def make(self, **changes: Any) -> Any:
        """What is called with tensors: the function itself, or an instance of the class under these settings."""
        if self.made_with is None:
            return self.target
        return self.target(**self._settings(changes, of_constructor=True))

    def __call__(self, tensors: Mapping[str, Tensor], *, axis: int = 1, made: Any = None, **changes: Any) -> Any:
        """Call it; `changes` are settings by role, `axis` is that of the classes, `made` an instance to use again."""
        temperature = changes.get("temperature", self.temperature)
        positional, named = [], {}
        for role in self._given(tensors):
            value = _as_form(tensors[role], self.forms.get(role, "logits"), temperature, axis)
            if self.names[role] is None:
                positional.append(value)
            else:
                named[str(self.names[role])] = value
        made = self.make(**changes) if made is None else made
        result = made(*positional, **named, **self._settings(changes, of_constructor=False))
        return _pick(result, self.output)

    def text(self, student: str = "s", teacher: str = "t", labels: str = "y", axis: int = 1, **changes: Any) -> str:
        """The same call as Python text, after `statement`."""
        temperature = changes.get("temperature", self.temperature)
        given = {"student": student, "teacher": teacher, "labels": labels}
        arguments = []
        for role in self._given(given):
            value = _form_text(given[role], self.forms.get(role, "logits"), temperature, axis)
            arguments.append(value if self.names[role] is None else f"{self.names[role]}={value}")
        arguments += _as_text(self._settings(changes, of_constructor=False))
        name = self.origin.split(":")[1]
        if self.made_with is not None:
            name += f"({', '.join(_as_text(self._settings(changes, of_constructor=True)))})"
        return f"{name}({', '.join(arguments)}){_pick_text(self.output)}"

    @property
    def statement(self) -> str:
        """What imports it."""
        module, attribute = self.origin.split(":")
        return f"from {module} import {attribute.split('.')[0]}"

    def _given(self, tensors: Mapping[str, object]) -> list[str]:
        return [role for role in TENSORS if role in self.names and role in tensors]

    def _settings(self, changes: Mapping[str, Any], *, of_constructor: bool) -> dict[str, Any]:
        by_name = {str(self.names[role]): value for role, value in changes.items()}
        every = {**self.settings, **by_name}
        return {key: value for key, value in every.items() if (key in (self.made_with or ())) == of_constructor}


def find_loss(
    origin: str,
    *,
    arguments: Sequence[str] = (),
    settings: Sequence[str] = (),
    output: str | None = None,
    forms: Mapping[str, str] | None = None,
) -> Loss:
    """The loss that `package.module:function` names, ready to be called.

    Args:
        origin: a function, a class with a `forward` or `__call__`, or an instance; dots after the colon go deeper.
        arguments: `role=name` for what the names do not tell; a name `none` leaves the role out.
        settings: `key=value` for its other arguments.
        output: the key, index or .attribute of the loss in what it returns, where that is not a tensor.
        forms: what `student` and `teacher` are handed over as, one of `FORMS`; else what their names say.

    Raises:
        InputError: there is no such loss, or its signature does not say how to call it.

    Example:
        >>> find_loss("tpkd:kd_loss", settings=["temperature=2.0"]).text()
        'kd_loss(student_logits=s, teacher_logits=t, labels=y, temperature=2.0)'
    """
    target = _resolve(origin)
    called, constructor = _signatures(target)
    roles = _match_roles(origin, called, constructor, _pairs(arguments, "--argument", "ROLE=NAME"))
    given = {key: _literal(value) for key, value in _pairs(settings, "--set", "KEY=VALUE").items()}
    parameters = {**constructor, **called}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in given:
        if key not in parameters and not open_ended:
            known = [name for name in parameters if name not in {roles.get(role) for role in TENSORS}]
            hint = did_you_mean(key, known) or f"; it has {', '.join(known) or 'no settings'}"
            raise InputError(f"--set {key}: {origin} has no such argument{hint}")
    temperature = parameters.get(str(roles.get("temperature")))
    if temperature is not None and temperature.default is temperature.empty:
        given.setdefault(temperature.name, TEMPERATURE)
    _check_complete(origin, parameters, set(given) | set(roles.values()))
    defaults = {
        role: parameters[name].default
        for role, name in roles.items()
        if role in SETTINGS and name is not None and parameters[name].default is not inspect.Parameter.empty
    }
    made_with = frozenset(constructor) if isinstance(target, type) else None
    said = {role: _form(str(roles.get(role))) for role in ("student", "teacher")}
    return Loss(origin, target, roles, made_with, given, defaults, output, {**said, **(forms or {})})


def _resolve(origin: str) -> Any:
    module_name, colon, attribute = origin.partition(":")
    if not colon or not module_name or not attribute:
        raise InputError(f"{origin}: expected package.module:function, for example tpkd:kd_loss")
    found: Any = _import(module_name)
    for name in attribute.split("."):
        if not hasattr(found, name):
            known = [public for public in dir(found) if not public.startswith("_")]
            raise InputError(f"{origin}: no {name} in {module_name}{did_you_mean(name, known)}")
        found = getattr(found, name)
    if not callable(found):
        raise InputError(f"{origin}: expected a function or a class, found {type(found).__name__}")
    return found


def _import(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        stem = Path(name).stem
        raise InputError(f"{name}: expected a module, not a file: say {stem}:function in the directory of {stem}.py")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if not (name == missing or name.startswith(f"{missing}.")):
            raise InputError(f"{name}: cannot be imported: {missing} is not installed") from error
        parent = missing.rpartition(".")[0]
        path = getattr(importlib.import_module(parent), "__path__", ()) if parent else [os.getcwd()]
        hint = did_you_mean(missing.rpartition(".")[2], (module.name for module in pkgutil.iter_modules(path)))
        raise InputError(f"{name}: no module named {missing} here{hint}") from error
    except (Exception, SystemExit) as error:  # importing a module may raise anything, SystemExit included
        raise InputError(f"{name}: cannot be imported: {type(error).__name__}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, cut to what fits on a line."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__


def _signatures(target: Any) -> tuple[dict[str, inspect.Parameter], dict[str, inspect.Parameter]]:
    """The arguments of the call, and of the constructor before it where there is one."""
    if not isinstance(target, type):
        return _parameters(getattr(target, "forward", target)), {}
    called = _parameters(getattr(target, "forward", target.__call__))
    called.pop("self", None)
    return called, _parameters(target)


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin does not tell
        anything = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
        return {"args": anything}


def _match_roles(
    origin: str,
    called: Mapping[str, inspect.Parameter],
    constructor: Mapping[str, inspect.Parameter],
    chosen: Mapping[str, str],
) -> dict[str, str | None]:
    """The argument of every role: what the user said, then what the names say, then the usual order."""
    for role, name in chosen.items():
        if role not in TENSORS + SETTINGS:
            known = ", ".join(TENSORS + SETTINGS)
            raise InputError(f"--argument {role}: expected one of {known}{did_you_mean(role, TENSORS + SETTINGS)}")
        if name != "none" and name not in called and (role in TENSORS or name not in constructor):
            hint = did_you_mean(name, called) or f"; it has {', '.join(called)}"
            raise InputError(f"--argument {role}={name}: {origin} has no such argument{hint}")
    roles: dict[str, str | None] = {role: name for role, name in chosen.items() if name != "none"}
    taken = set(chosen.values())
    for name, parameter in called.items():
        plain = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if (meant := _role(name)) and plain and name not in taken and meant not in chosen:
            roles.setdefault(meant, name)
    for name in constructor:
        if (meant := _role(name)) in SETTINGS and meant not in chosen:
            roles.setdefault(meant, name)
    if "student" not in roles and "student" not in chosen:
        roles |= _student_by_habit(called, roles, chosen)
    lone_target = roles.get("labels") in _AMBIGUOUS and "labels" not in chosen
    if "student" not in roles or not {"teacher", "labels"} & roles.keys() or ("teacher" not in roles and lone_target):
        raise InputError(
            f"{origin}: cannot tell student and teacher among {', '.join(called) or 'no arguments'}; "
            "say --argument student=NAME --argument teacher=NAME (and labels=NAME)"
        )
    return roles


def _student_by_habit(
    called: Mapping[str, inspect.Parameter], roles: Mapping[str, str | None], chosen: Mapping[str, str]
) -> dict[str, str | None]:
    """`input` beside a teacher is the student; without any name that tells, the order is student, teacher, labels."""
    free = [p for name, p in called.items() if name not in roles.values()]
    for parameter in free:
        if parameter.name in _LONE_STUDENT and parameter.kind is not parameter.POSITIONAL_ONLY:
            return {"student": parameter.name}
    if "teacher" in roles or "teacher" in chosen:
        return {}
    named = [p.name for p in free if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    if len(named) >= 2:
        return {"student": named[0], "teacher": named[1]}
    positional = [p for p in called.values() if p.kind is p.POSITIONAL_ONLY]
    if any(p.kind is p.VAR_POSITIONAL for p in called.values()) or len(positional) >= 2:
        count = len(TENSORS) if not positional else min(len(positional), len(TENSORS))
        return {role: None for role in TENSORS[:count] if role not in chosen}
    return {}


def _role(name: str) -> str | None:
    """What an argument is for, by its name.

    Example:
        >>> [_role(name) for name in ("logits_S", "preds_T", "T", "gt_labels", "student_temperature", "alpha")]
        ['student', 'teacher', 'temperature', 'labels', None, None]
    """
    pieces = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    words = {piece.lower() for piece in pieces}
    for role, short, lone in (("student", "s", {"s", "zs", "ys"}), ("teacher", "t", {"t", "zt", "yt"})):
        if role in words:
            return None if words & _OTHER_THINGS else role
        if name in lone or (short in words and words - {short} and words - {short} <= _LOGITS):
            return role
    if name in _LABELS:
        return "labels"
    if words & {"temperature", "temp", "tau"} or "T" in pieces:
        return "temperature"
    if name in _NUM_ITEMS:
        return "num_items"
    return name if name in ("reduction", "ignore_index") else None


def _form(name: str) -> str:
    """What an argument takes, by its name.

    Example:
        >>> [_form(name) for name in ("teacher_probs", "student_log_probs", "logits_S")]
        ['probabilities', 'log-probabilities', 'logits']
    """
    words = set(name.lower().split("_"))
    if not words & _PROBABILITIES:
        return "logits"
    return "log-probabilities" if words & {"log", "logprobs", "logprob"} else "probabilities"


def _check_complete(origin: str, parameters: Mapping[str, inspect.Parameter], given: set[Any]) -> None:
    for parameter in parameters.values():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY)
        if parameter.default is parameter.empty and not variadic and parameter.name not in given:
            raise InputError(
                f"{origin}: {parameter.name} has no default; say --set {parameter.name}=VALUE, "
                f"or --argument ROLE={parameter.name} if it takes one of {', '.join(TENSORS)}"
            )


def _pairs(texts: Sequence[str], option: str, form: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{option} {text}: expected {form}")
        pairs[key] = value
    return pairs


def _literal(text: str) -> Any:
    """A Python number, boolean, None, list or tuple; anything else is the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _as_form(tensor: Tensor, form: str, temperature: float, axis: int) -> Tensor:
    """Logits as what the loss takes; probabilities are those at the temperature of the call."""
    if form == "logits" or not tensor.is_floating_point():
        return tensor
    log_probs = (tensor / temperature).log_softmax(axis)
    return log_probs.exp() if form == "probabilities" else log_probs


def _form_text(name: str, form: str, temperature: float, axis: int) -> str:
    if form == "logits":
        return name
    softened = f"({name})" if temperature == 1 else f"({name}/{temperature})"
    return f"{softened}.{'softmax' if form == 'probabilities' else 'log_softmax'}({axis})"


def _pick(result: Any, output: str | None) -> Any:
    if output is None:
        return result
    return getattr(result, output[1:]) if output.startswith(".") else result[_literal(output)]


def _pick_text(output: str | None) -> str:
    if output is None:
        return ""
    return output if output.startswith(".") else f"[{_value_text(_literal(output))}]"


def _as_text(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key}={_value_text(value)}" for key, value in settings.items()]


def _value_text(value: Any) -> str:
    """A value in Python; strings in double quotes, because the whole command is in single quotes."""
    return json.dumps(value) if isinstance(value, str) else repr(value)
