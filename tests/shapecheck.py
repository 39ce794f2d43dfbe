"""The type checker for signatures in tests: beartype, with PEP 484's reading that an int is a float."""

from beartype import BeartypeConf, beartype

checker = beartype(conf=BeartypeConf(is_pep484_tower=True))
