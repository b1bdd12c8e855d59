"""Runs of Swift scripts: drives the evaluation of a program by a session, and carries out what it asks for."""
