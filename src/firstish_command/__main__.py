"""`python -m firstish_command` is the command line."""

from firstish_command import main

main()
