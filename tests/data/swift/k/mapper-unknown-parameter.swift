type file;
file f[] <filesys_mapper; patern="*">;
trace(length(f));
//! patern
