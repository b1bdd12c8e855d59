this is not swift
//! 1:
