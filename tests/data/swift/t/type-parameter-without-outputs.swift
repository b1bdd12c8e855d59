// A function with type parameters may give nothing back.
import io;
<T> show(T x) { trace(x); }
<K, V> pair(K k, V v) { trace(k, v); }
show(3);
show("three");
pair(1, "one");
//> trace: 3
//> trace: three
//> trace: 1,one
