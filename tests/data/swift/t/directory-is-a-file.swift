//@ data.txt content
trace(filename(directory("data.txt")));
//! 'data.txt' is no directory
