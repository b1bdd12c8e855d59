"""The file system over all nodes as a pure machine (`vfs/`), and the mounts that serve it."""
