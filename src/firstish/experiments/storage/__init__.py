"""The files of a run, written so that nothing is lost."""
