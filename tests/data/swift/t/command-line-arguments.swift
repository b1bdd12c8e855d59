// variables that plain arguments fill
//$ seven 7 2.5 true data.txt made.txt
//@ data.txt content
import files;
arguments(string word : "any word", int number, float real, boolean yes, input data : "is read", output made, int last=-4,
          string text="a \"b\"", description : "Prints what it is given.");
trace(word, number + 1, real * 2, yes, read(data), last, text);
made = write("made of " + word);
f() { trace("in a function", word); }
f();
//> trace: seven,8,5.0,1,content,-4,a "b"
//> trace: in a function,seven
//= made.txt made of seven
