type file;
file f[] <fixed_array_mapper>;
trace(@f[0]);
//! files
