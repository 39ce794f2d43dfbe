"""The key `tracking`: which services beside `metrics.jsonl` are told about a run."""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator

Tracker = Literal["tensorboard", "wandb", "mlflow", "trackio"]
TRACKERS: tuple[str, ...] = get_args(Tracker)


def _check_once(names: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"expected every tracker once, found {name} {names.count(name)} times")
    return names


Tracking = Annotated[tuple[Tracker, ...], AfterValidator(_check_once)]


def translate_tensorboard(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a run in which the older key `tensorboard` has become `tracking`.

    Example:
        >>> translate_tensorboard({"tensorboard": False, "epochs": 1})
        {'epochs': 1, 'tracking': []}
    """
    asked = data.get("tensorboard")
    if not isinstance(asked, bool):
        return data
    if data.get("tracking") is not None:
        raise ValueError(f"tensorboard: expected none beside tracking, found {str(asked).lower()}; tracking lists all")
    rest = {key: value for key, value in data.items() if key != "tensorboard"}
    return rest | {"tracking": ["tensorboard"] if asked else []}
