"""What a run is read into: its summary, figures and page."""
