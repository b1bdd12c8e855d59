"""Text for people: sizes, tables, progress, the summary of a run."""
