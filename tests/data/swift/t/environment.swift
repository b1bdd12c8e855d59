trace(getenv("SWIFT_TEST_VARIABLE"), getenv("SWIFT_TEST_NOT_SET"));
//> trace: value,
