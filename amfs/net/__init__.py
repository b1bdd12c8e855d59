"""Messages between processes: frames, links, the ZeroMQ transport, keys and the records of sessions."""
