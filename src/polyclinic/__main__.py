"""`python -m polyclinic` is the command line."""

from polyclinic.cli import main

main()
