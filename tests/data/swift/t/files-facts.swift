//@ in.txt 12345
trace(file_exists("in.txt"), file_exists("absent"), file_size(input("in.txt")), file_type("in.txt"));
//> trace: 1,0,5,file
