"""The commands of `amfs`: options, messages to people, exit codes."""
