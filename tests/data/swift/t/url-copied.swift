// a file at a URL is not copied
url u = input_url("http://127.0.0.1:1/x");
file f<"f"> = u;
//! this is of type url
