"""`python -m firstish` is the command line."""

from firstish.cli import main

main()
