"""The Swift languages (Swift/T and Swift/K): from text to a checked program, and its evaluation as dataflow. Pure."""
