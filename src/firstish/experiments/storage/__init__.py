"""The files of a run, which survive kills, full disks and damage."""
