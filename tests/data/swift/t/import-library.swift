import io;
import string;
import math;
printf("%s", strcat("a", 1));
//> a1
