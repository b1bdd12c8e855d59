"""Pure machines and vocabulary: no socket, no clock, no file system."""
