"""The run engine as pure machines, with the messages, states and partition table that all processes share."""
