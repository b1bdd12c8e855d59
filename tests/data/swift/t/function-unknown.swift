trace(squareroot(4.0));
//! squareroot
