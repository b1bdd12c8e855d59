trace(sqrt(16.0), floor(2.7), max(1, 2), sum([1, 2, 3]));
//> SwiftScript trace: 4.0, 2, 2, 6
