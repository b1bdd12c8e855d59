"""The queue of a session: tasks that are recorded by anybody, run as batches, and waited for; the shell that queues them."""
