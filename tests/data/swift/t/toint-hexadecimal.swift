trace(toint("0x10"));
//! could not convert
