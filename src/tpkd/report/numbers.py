"""Number formats, shared by the terminal, sentences and pages."""

from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

NONE = "none"


def nats(value: float | None) -> str:
    """Nats, to the thousandth.

    Example:
        >>> nats(1.80349), nats(0.00012), nats(0.0), nats(None)
        ('1.803', '<0.001', '0.000', 'none')
    """
    if value is None:
        return NONE
    if 0 < value < 0.0005:
        return "<0.001"
    return f"{value:,.3f}" if value < 1e6 else f"{value:.3g}"


def share(value: float | None) -> str:
    """A share in percent.

    Example:
        >>> share(0.589), share(0.99996), share(0.0), share(None)
        ('58.9 %', '>99.9 %', '0.0 %', 'none')
    """
    if value is None:
        return NONE
    if 0 < value < 0.0005:
        return "<0.1 %"
    if 0.9995 <= value < 1:
        return ">99.9 %"
    return f"{100 * value:.1f} %"


def probability(value: float | None) -> str:
    """A probability, to the thousandth; never rounded up to certainty.

    Example:
        >>> probability(0.9459), probability(0.99997), probability(1.0), probability(None)
        ('0.946', '>0.999', '1.000', 'none')
    """
    if value is None:
        return NONE
    if 0 < value < 0.0005:
        return "<0.001"
    return ">0.999" if 0.9995 <= value < 1 else f"{value:.3f}"


def count(value: int | None) -> str:
    """A count, with thousands separators.

    Example:
        >>> count(16000)
        '16,000'
    """
    return NONE if value is None else f"{value:,}"


def plural(number: int, noun: str) -> str:
    """A count with its noun in singular or plural.

    Example:
        >>> plural(1, "seed"), plural(3, "seed")
        ('1 seed', '3 seeds')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """Names as a list in a sentence; at least one.

    Example:
        >>> listed(["CE", "KD", "TPKD"]), listed(["CE"])
        ('CE, KD and TPKD', 'CE')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def percent(value: float | None) -> str:
    """An accuracy in percent with two decimals, without the percent sign.

    Example:
        >>> percent(0.87374), percent(None)
        ('87.37', 'none')
    """
    return NONE if value is None else f"{100 * value:.2f}"


def points(value: float | None) -> str:
    """A difference of accuracies in percentage points, with its sign.

    Example:
        >>> points(0.0047), points(-0.0272), points(0.0)
        ('+0.47', '-2.72', '0.00')
    """
    if value is None:
        return NONE
    text = f"{100 * value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def milli(value: float | None) -> str:
    """A small number in thousandths, as in the paper's mechanism tables.

    Example:
        >>> milli(0.0011953), milli(-0.001359)
        ('1.195', '-1.359')
    """
    return NONE if value is None else f"{1000 * value:.3f}"


def decimal(value: float | None) -> str:
    """A number that may have either sign, to four decimals.

    Example:
        >>> decimal(0.72204), decimal(-0.2441)
        ('0.7220', '-0.2441')
    """
    return NONE if value is None else f"{value:.4f}"


def seconds(value: float | None) -> str:
    """A wall-clock time in seconds.

    Example:
        >>> seconds(7.31), seconds(4000)
        ('7.3', '4,000.0')
    """
    return NONE if value is None else f"{value:,.1f}"


def signed_nats(value: float | None) -> str:
    """A difference in nats, with its sign.

    Example:
        >>> signed_nats(-0.2441), signed_nats(0.32), signed_nats(None)
        ('-0.244', '+0.320', 'none')
    """
    return NONE if value is None else f"{value:+.3f}"


def tally(value: float | None) -> str:
    """A mean of counts, to one decimal.

    Example:
        >>> tally(3.6667), tally(1200.0)
        ('3.7', '1,200.0')
    """
    return NONE if value is None else f"{value:,.1f}"


def megabytes(value: int | None) -> str:
    """A number of bytes in megabytes (10^6 bytes), without the unit.

    Example:
        >>> megabytes(28_840), megabytes(340_008_000), megabytes(1_340_000_000)
        ('0.029', '340', '1,340')
    """
    return NONE if value is None else _three_digits(value / 1e6)


def milliseconds(value: float | None) -> str:
    """A short time in milliseconds, to two or three significant digits, without the unit.

    Example:
        >>> milliseconds(0.0161), milliseconds(12.34), milliseconds(1234.5), milliseconds(None)
        ('0.016', '12.3', '1,234', 'none')
    """
    return NONE if value is None else _three_digits(value)


def _three_digits(value: float) -> str:
    """Three significant digits, two below one."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 1:
        return f"{value:.3g}"
    exact = Decimal(f"{value:.1e}")
    return f"{exact:f}"


def nats_down(value: float | None) -> str:
    """A lower bound in nats, rounded down, so that what is shown is a lower bound too.

    Example:
        >>> nats_down(1.80349), nats_down(1.8039), nats_down(0.00012), nats_down(None)
        ('1.803', '1.803', '0.000', 'none')
    """
    return NONE if value is None else nats(_rounded(value, 3, ROUND_FLOOR))


def probability_down(value: float | None) -> str:
    """A lower bound of a probability, rounded down.

    Example:
        >>> probability_down(0.9459), probability_down(0.99997), probability_down(1.0)
        ('0.945', '0.999', '1.000')
    """
    return NONE if value is None else probability(_rounded(value, 3, ROUND_FLOOR))


def share_down(value: float | None) -> str:
    """A lower bound of a share in percent, rounded down.

    Example:
        >>> share_down(0.5899), share_down(0.00012)
        ('58.9 %', '0.0 %')
    """
    return NONE if value is None else share(_rounded(value, 3, ROUND_FLOOR))


def share_up(value: float | None) -> str:
    """An upper bound of a share in percent, rounded up.

    Example:
        >>> share_up(0.5891), share_up(0.00012), share_up(0.0)
        ('59.0 %', '0.1 %', '0.0 %')
    """
    return NONE if value is None else share(_rounded(value, 3, ROUND_CEILING))


def _rounded(value: float, places: int, direction: str) -> float:
    # From the digits that a person would write: 0.34 in binary lies a little above, and must not become 34.1 %.
    exact = Decimal(repr(value))
    exponent = -places if value < 1e6 else exact.adjusted() - 2  # as many digits as `nats` shows
    return float(exact.quantize(Decimal(1).scaleb(exponent), direction))


FORMATS: dict[str, Callable[..., str]] = {
    "nats": nats,
    "share": share,
    "probability": probability,
    "count": count,
    "percent": percent,
    "points": points,
    "milli": milli,
    "decimal": decimal,
    "signed_nats": signed_nats,
    "seconds": seconds,
    "tally": tally,
    "megabytes": megabytes,
    "milliseconds": milliseconds,
    "nats_down": nats_down,
    "probability_down": probability_down,
    "share_down": share_down,
    "share_up": share_up,
}
