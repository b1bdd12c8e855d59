// blobs and files
import blob; blob b = blob_from_string("hello"); trace(blob_size(b), string_from_blob(b)); file f<"bl"> = blob_write(b); blob c = blob_read(f); trace(string_from_blob(c));
blob d = blob_from_floats([1.0, 2.0]); trace(blob_size(d)); float F[] = floats_from_blob(d); trace(F[1]);
//> trace: 6,hello
//> trace: 16
//> trace: 2.0
//> trace: hello
