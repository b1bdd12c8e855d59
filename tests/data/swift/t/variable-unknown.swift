trace(conut);
int count = 1;
//! conut
