file f <"not-there">;
file g[] <fixed_array_mapper; files="nope nada">;
trace("fine");
//> SwiftScript trace: fine
