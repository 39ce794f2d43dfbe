"""The Hugging Face hub: asked once whether it answers, because its libraries retry each request for half a minute."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

TIMEOUT = 10.0
"""Seconds for one answer."""


@cache
def hub_answers() -> bool:
    """Whether the hub answers anything at all, through whatever proxy its library uses; asked once per process.

    False too where the user has set `HF_HUB_OFFLINE`.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
    except Exception:  # of the HTTP library, which is another one in each release
        return False
    return True


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Let the libraries of the hub use it; where it does not answer, only what they have cached, without waiting."""
    if hub_answers():
        yield
        return
    from huggingface_hub import constants

    # The second library has a copy of the switch.
    places: list[Any] = [constants, *filter(None, [sys.modules.get("datasets.config")])]
    before = [place.HF_HUB_OFFLINE for place in places]
    for place in places:
        place.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for place, switch in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = switch
