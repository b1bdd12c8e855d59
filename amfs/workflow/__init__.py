"""Workflows: tasks and files, the checks before a run, the order of tasks, what a resumed run may skip. Pure."""
