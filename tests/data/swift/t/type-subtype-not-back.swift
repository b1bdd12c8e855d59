type text file;
text t = write("x");
trace(read(t));
//! text
