"""The vocabulary that all processes share: messages, requests, events, states, records of tasks, keys and partitions. Pure."""
