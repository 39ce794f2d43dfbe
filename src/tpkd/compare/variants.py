"""The methods of a comparison by name: every objective, and the variants that a configuration adds."""

from collections.abc import Iterable, Mapping

from tpkd.compare.record import NamedVariant
from tpkd.config.loading import ConfigError
from tpkd.config.schema import RunConfig
from tpkd.config.variants import VariantConfig
from tpkd.errors import InputError, did_you_mean
from tpkd.objectives import describe, names


def method_names(variants: Mapping[str, VariantConfig]) -> tuple[str, ...]:
    """Every method in the order of tables: the objectives, each followed by its variants.

    Raises:
        ConfigError: a variant of an unknown objective, or with the name of an objective.

    Example:
        >>> method_names({"kd-t1": VariantConfig(objective="kd", settings={"temperature": 1})})[:4]
        ('ce', 'kd', 'kd-t1', 'kl-dist')
    """
    objectives = names()
    for name, variant in variants.items():
        if name in objectives:
            raise ConfigError(f"variants.{name}: expected a name of its own, found that of an objective")
        if variant.objective not in objectives:
            expected = f"expected one of {', '.join(objectives)}{did_you_mean(variant.objective, objectives)}"
            raise ConfigError(f"variants.{name}.objective: unknown objective {variant.objective!r}, {expected}")
    return tuple(
        row
        for objective in objectives
        for row in (objective, *(name for name, variant in variants.items() if variant.objective == objective))
    )


def check_methods(chosen: Iterable[str], key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Unique names of methods; an unknown one is refused with the closest matches."""
    chosen = tuple(dict.fromkeys(chosen))
    for name in chosen:
        if name not in known:
            expected = f"expected some of {', '.join(known)}{did_you_mean(name, known)}"
            raise InputError(f"{key}: unknown objective {name!r}, {expected}")
    return chosen


def named_variants(variants: Mapping[str, VariantConfig], rows: Iterable[str]) -> tuple[NamedVariant, ...]:
    """The variants among the rows of a comparison, with their titles."""
    titles = {method.name: method.title for method in describe()}
    found = ((name, variants[name]) for name in rows if name in variants)
    return tuple(NamedVariant(name, each.objective, each.title_of(titles[each.objective])) for name, each in found)


def own_overrides(config: RunConfig) -> dict[str, object]:
    """What a configuration sets for the method of this run alone, dotted key -> value."""
    own = dict(config.methods.get(config.objective.name, {}))
    variant = config.variants.get(config.objective.row)
    return own | dict(variant.assignments if variant else ())
