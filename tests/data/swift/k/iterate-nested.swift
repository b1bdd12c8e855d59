iterate i {
  iterate j { tracef("%i%i\n", i, j); } until (j >= 2);
} until (i >= 2);
//> 00
//> 01
//> 10
//> 11
