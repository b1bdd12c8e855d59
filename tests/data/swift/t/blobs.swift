blob b = blob_from_string("abc");
trace(blob_size(b), string_from_blob(b));
float A[] = floats_from_blob(blob_from_floats([1.5, 2.5]));
trace(A[1]);
//> trace: 4,abc
//> trace: 2.5
