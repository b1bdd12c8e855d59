type file;
file f <single_file_mapper; location="x">;
trace(@f);
//! file
