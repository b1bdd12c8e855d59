trace(1.0, 10.50, 1e7, 123456789.0, 0.001, 0.0001, 3.0e-10, 1e21, 100, -0.0);
trace(toString(1.0) + "|" + toString(true) + "|" + 2);
trace(toFloat("1e3"), toInt("  12 "), toInt(-3.9));
//> SwiftScript trace: 1.0, 10.5, 1.0E7, 1.23456789E8, 0.001, 1.0E-4, 3.0E-10, 1.0E21, 100, -0.0
//> SwiftScript trace: 1.0|true|2
//> SwiftScript trace: 1000.0, 12, -3
