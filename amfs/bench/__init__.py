"""Measurements of this machine and of amfs on it, for people: tasks and transfers beside xargs and TCP, and costs for the simulator."""
