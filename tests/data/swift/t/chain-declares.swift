// What a chain declares after a variable that it waits for, the block around it sees.
import io;
int A[];
foreach i in [1:3] { A[i] = i; }
first = 5 => A => second = first + size(A) => third = second * 2;
printf("%i %i %i", first, second, third);
int x = 1;
x => int y = x + 1;
printf("%i", y);
A[2] => trace("element");
//> 5 8 16
//> 2
//> trace: element
