"""Evaluation of a checked program: events in, effects (tasks, requests) out. A pure machine."""
