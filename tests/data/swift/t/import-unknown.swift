import nosuchmodule;
trace(1);
//! nosuchmodule
