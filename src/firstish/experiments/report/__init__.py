"""The summary, figures and page of a run."""
