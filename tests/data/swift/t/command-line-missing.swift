trace(argv("absent"));
//! -absent
