trace(toInt("abc"));
//! abc
