BEGIN { printf "%g %g %.3f\n", angle, speed, speed ^ 2 * sin(2 * angle * atan2(0, -1) / 180) / 9.81 }
