package amfs.nextflow;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

import nextflow.exception.ProcessException;
import nextflow.executor.BashWrapperBuilder;
import nextflow.processor.TaskConfig;
import nextflow.processor.TaskHandler;
import nextflow.processor.TaskRun;
import nextflow.processor.TaskStatus;
import nextflow.trace.TraceRecord;

/** One task: the order to amfs to run it, and the news for Nextflow of its end. Reads no file to know how the task stands. */
public class AmfsTaskHandler extends TaskHandler {
    private final Bridge bridge;
    private final long key;
    private volatile long startedMs; // 0: not known to run
    private volatile Map<?, ?> ended; // how, as the bridge told it
    private volatile String lost; // why nobody will ever tell

    public AmfsTaskHandler(TaskRun task, Bridge bridge) {
        super(task);
        this.bridge = bridge;
        this.key = bridge.newKey();
    }

    long key() {
        return key;
    }

    @Override
    public void prepareLauncher() {
        new BashWrapperBuilder(getTask().toTaskBean()).build();
    }

    @Override
    public void submit() {
        TaskConfig config = getTask().getConfig();
        Map<String, Object> job = new LinkedHashMap<>();
        job.put("do", "submit");
        job.put("key", key);
        job.put("name", getTask().getName());
        job.put("label", getTask().getProcessor().getName());
        job.put("dir", getTask().getWorkDir().toAbsolutePath().toString());
        job.put("cpus", config.getCpus());
        job.put("memory", config.getMemory() != null ? config.getMemory().toBytes() : 0L);
        job.put("time", config.getTime() != null ? config.getTime().toMillis() / 1000.0 : 0.0);
        bridge.submit(this, job);
        setStatus(TaskStatus.SUBMITTED);
    }

    // ── what the bridge tells, in its thread ──────────────────────────────────────────────────────

    void started(long atMs) {
        startedMs = atMs;
    }

    void ended(Map<?, ?> how) {
        ended = how;
    }

    void lost(String why) {
        lost = why;
    }

    // ── what Nextflow asks, again and again ───────────────────────────────────────────────────────

    @Override
    public boolean checkIfRunning() {
        if (!isSubmitted() || startedMs == 0 && ended == null && lost == null)
            return false;
        setStatus(TaskStatus.RUNNING);
        long start = ended != null ? number(ended.get("start")) : startedMs;
        if (start > 0)
            setStartTimeMillis(start);
        return true;
    }

    @Override
    public boolean checkIfCompleted() {
        if (!isRunning() || ended == null && lost == null)
            return false;
        Path folder = getTask().getWorkDir();
        getTask().setStdout(folder.resolve(TaskRun.CMD_OUTFILE));
        getTask().setStderr(folder.resolve(TaskRun.CMD_ERRFILE));
        long status = ended != null ? number(ended.get("exit")) : -1;
        getTask().setExitStatus(status >= 0 ? (int) status : Integer.MAX_VALUE);
        Object why = ended != null ? ended.get("why") : lost;
        if (why != null)
            getTask().setError(new ProcessException("amfs: " + why));
        setStatus(TaskStatus.COMPLETED);
        return true;
    }

    @Override
    public void kill() {
        killTask();
    }

    /** What newer releases of Nextflow ask for, which have a kill of their own. */
    protected void killTask() {
        if (ended == null)
            bridge.kill(this);
    }

    @Override
    public TraceRecord getTraceRecord() {
        TraceRecord record = super.getTraceRecord();
        record.put("native_id", bridge.runName() + "/" + key);
        return record;
    }

    private static long number(Object value) {
        return value instanceof Number number ? number.longValue() : 0;
    }
}
