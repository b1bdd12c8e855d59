"""Flags of open(2), for the pure modules. Pure: numbers only."""

from os import O_ACCMODE, O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY

__all__ = ["O_ACCMODE", "O_APPEND", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_RDONLY", "O_RDWR", "O_TRUNC", "O_WRONLY"]
