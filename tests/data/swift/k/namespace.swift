namespace "http://example.org/a";
namespace ns "http://example.org/b";
int namespace = 3;
tracef("%i\n", namespace);
//> 3
