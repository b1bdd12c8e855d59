//@ d/in.txt text
import files; import sys; import location; import unix;
file f = input("d/in.txt");
trace(file_type(f), file_type_string("d"));
trace(substring(realpath_string("d/../d/in.txt"), 0, 1), replace(realpath_string("x"), realpath_string("."), "", 0));
trace(read(realpath(f)));
trace(strlen(clock_format(CLOCK_FMT_ISO8601, 86400)), clock_format("%Y", 1e9));
trace(size(hostmapLeaders()), hostmapLeaders()[0]);
trace(urlname(input_url("http://x/y")));
location l = hostmapOne(hostmapList()[0]);
location many[]; many[3] = location(2, SOFT, NODE);
trace(l.rank, l.strictness, l.accuracy, many[3].rank, many[3].accuracy, randomWorker().rank);
sleep(0) => catp([f]);
//> trace: file,directory
//> trace: /,/x
//> trace: text
//> trace: 19,2001
//> trace: 1,0
//> trace: http://x/y
//> trace: 0,HARD,RANK,2,NODE,0
