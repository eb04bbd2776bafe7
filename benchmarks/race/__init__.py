"""The race: its problems, its methods, and how it counts. The command is benchmarks/race.py."""
