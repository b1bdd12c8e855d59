#include <builtins.swift>
trace(1);
//> trace: 1
