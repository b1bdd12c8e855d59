trace(filename(directory("nothing")));
//! the directory 'nothing' does not exist
