"""`python -m tpkd` is the `tpkd` command."""

from tpkd.cli.main import main

main()
