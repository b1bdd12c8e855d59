"""Workflow formats, read and written: task lists, JSON Lines, DAX, Pegasus 5, WfFormat, Makeflow."""
