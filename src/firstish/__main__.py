"""`python -m firstish` is the command line."""

from firstish_command import main

main()
