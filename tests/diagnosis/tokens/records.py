"""A diagnosis of a language model, made by hand."""

from tpkd.diagnosis.tokens.record import Choice, InstructiveToken, TokenDiagnosis, TokenGroup, TokenMeans

EVIL = "<script>alert(1)</script>"


def means(tokens=40, left=0.25):
    return TokenMeans(tokens, 2.5, 2.0, 0.5, 0.125, left, 3.0)


def record():
    empty = TokenGroup("90 % and above", TokenMeans(0, None, None, None, None, None, None))
    choices = (Choice(EVIL, 0.5), Choice(" b", 0.25))
    token = InstructiveToken(3, 1, 7, f"before {EVIL}", EVIL, " after", 1.5, 4.0, True, 0.1, 0.2, choices, choices)
    groups = (TokenGroup("below 1 %", means(10, 0.5)), TokenGroup("1 to 10 %", means(30)), empty)
    positions = (TokenGroup("1", means()),)
    return TokenDiagnosis(EVIL, "cache", 300, 8, 12.18, 7.39, means(), positions, positions, groups, (token,))
