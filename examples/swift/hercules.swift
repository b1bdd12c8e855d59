// Swift/T: Figure 3 of the Hercules paper. Files are placed round-robin over the nodes; each task runs where its file is, if it can.
import io; import location;

app (file file_output) write_file() { "sh" "-c" "echo data > $0" file_output; }
app (void v) read_file(file file_input) { "grep" "-q" "data" file_input; }

int n = 8;
int nnodes = turbine_workers();
string file_name[];
foreach i in [0:n - 1] { file_name[i] = "part-%i.txt" % i; }

foreach i in [0:n - 1] {
  void placed = set_rank(file_name[i], i %% nnodes);
  wait (placed) {
    rank1 = get_rank(file_name[i]);
    location L1 = location(rank1, SOFT, RANK);
    file f<file_name[i]> = @location=L1 write_file();
    rank2 = get_rank(file_name[i]);
    location L2 = location(rank2, SOFT, RANK);
    @location=L2 read_file(f) => printf("file %i on node %i", i, rank2);
  }
}
