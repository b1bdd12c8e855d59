trace(arg("absent"));
//! -absent
