#define DEBUG
#ifdef DEBUG
trace("debug");
#else
trace("no");
#endif
#ifndef OTHER
trace("other");
#endif
//> trace: debug
//> trace: other
