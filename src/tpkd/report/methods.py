"""How the report calls the objectives, in the order of the paper's tables, and what the paper measured."""

TITLES = {
    "ce": "CE",
    "kd": "KD",
    "kl-dist": "KL-Dist",
    "dkd": "DKD",
    "dp-u": "DP-U",
    "dp-s": "DP-S",
    "xe-kl": "XE-KL",
    "dhkd": "DHKD",
    "dto-kd": "DTO-KD",
    "tpkd": "TPKD",
    "tpkd-no-ce": "TPKD without CE gradient",
    "safe-full-kl": "Safe full-KL",
    "tpkd-no-projection": "TPKD without projection",
    "compensation-only": "Compensation only",
}

APPLICATION = ("ce", "kd", "kl-dist", "dkd", "dp-u", "dp-s", "xe-kl", "dhkd", "dto-kd", "tpkd")

ABLATION = {
    "ce": ("CE", "h"),
    "tpkd-no-ce": ("Without CE gradient", "d/2"),
    "safe-full-kl": ("Safe full-KL", "h + Π(p − t)/2"),
    "tpkd-no-projection": ("Without projection", "h + u/2"),
    "compensation-only": ("Compensation only (ours)", "h + ℓa₀/2"),
    "tpkd": ("TPKD", "h + d/2"),
}
"""Condition and direction; compensation only is a row that the paper's table does not have."""

PAPER_BETA = 0.5

PAPER_ACCURACY = {
    "vision": {
        "ce": (87.37, 0.07),
        "kd": (87.58, 0.07),
        "kl-dist": (82.26, 0.05),
        "dkd": (84.53, 0.09),
        "dp-u": (83.14, 0.04),
        "dp-s": (83.65, 0.01),
        "xe-kl": (84.17, 0.05),
        "dhkd": (85.83, 0.10),
        "dto-kd": (87.81, 0.11),
        "tpkd": (88.05, 0.12),
        "tpkd-no-ce": (85.33, 0.05),
        "safe-full-kl": (87.21, 0.04),
        "tpkd-no-projection": (87.83, 0.03),
    },
    "text": {
        "ce": (93.24, 0.28),
        "kd": (93.46, 0.34),
        "kl-dist": (93.38, 0.19),
        "dkd": (93.59, 0.20),
        "dp-u": (93.38, 0.19),
        "dp-s": (93.44, 0.28),
        "xe-kl": (93.41, 0.22),
        "dhkd": (93.29, 0.38),
        "dto-kd": (93.46, 0.23),
        "tpkd": (93.81, 0.27),
        "tpkd-no-ce": (91.60, 0.07),
        "safe-full-kl": (93.33, 0.29),
        "tpkd-no-projection": (93.83, 0.23),
    },
}
"""Mean and sample standard deviation in percent over three seeds."""

PAPER_STATES = {
    "CE20": ("50.00", "1.696", "7.520"),
    "CE40": ("55.29", "1.766", "7.632"),
    "CE60": ("58.90", "1.803", "7.569"),
}
PAPER_EXACT = {
    "CE20": ("1.195", "-1.359", "52.13", "0.7220", "-3.302"),
    "CE60": ("1.213", "-1.283", "52.13", "0.7221", "-1.831"),
}
PAPER_CERTIFICATE = {"CE20": ("16/16", "16/16", "16/16", "8.252"), "CE60": ("16/16", "16/16", "16/16", "9.886")}
PAPER_CONTINUATION = ("1.800", "1.557", "-0.244", "-0.320")


def title(objective: str) -> str:
    """The name for people; an unknown one stays as it is.

    Example:
        >>> title("dp-u")
        'DP-U'
    """
    return TITLES.get(objective, objective)
