type file;
file fs[] <simpel_mapper; prefix="x">;
trace(length(fs));
//! simple_mapper
