package amfs.nextflow;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import groovy.json.JsonOutput;
import groovy.json.JsonSlurper;
import nextflow.exception.AbortOperationException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The one process of amfs beside Nextflow (<code>python -m amfs.plugs.nextflow</code>), which lives as long as the run. One JSON object
 * a line: orders of Nextflow go to its standard input, results of tasks come from its standard output. When its standard input
 * ends, however Nextflow ended, it kills what runs and ends too.
 */
final class Bridge {
    static final int VERSION = 1; // of the lines; amfs says its own first
    private static final Logger log = LoggerFactory.getLogger("nextflow.amfs"); // what Nextflow shows to people
    private static final int LINES_KEPT = 20;
    private static final long ENDS_S = 30;

    private final Process process;
    private final String runName;
    private final Runnable signal;
    private final OutputStream input;
    private final BufferedReader output;
    private final Map<Long, AmfsTaskHandler> unfinished = new ConcurrentHashMap<>();
    private final AtomicLong keys = new AtomicLong();
    private final Deque<String> complaints = new ArrayDeque<>(); // the last lines of its standard error
    private final Thread complaintsReader;
    private volatile String over; // why no task will run any more
    private volatile boolean ended; // it will tell of no task any more

    private Bridge(Process process, String runName, Runnable signal) {
        this.process = process;
        this.runName = runName;
        this.signal = signal;
        input = process.getOutputStream();
        output = process.inputReader(StandardCharsets.UTF_8);
        complaintsReader = daemon("amfs complaints", this::readComplaints);
    }

    /** Raises AbortOperationException, with one sentence for the user, if amfs cannot be had. */
    static Bridge start(List<String> command, Runnable signal) {
        log.debug("[amfs] {}", command);
        Process process;
        try {
            process = new ProcessBuilder(command).start();
        } catch (IOException error) {
            throw new AbortOperationException("amfs: " + error.getMessage() + ": amfs.python names the Python that has amfs");
        }
        Bridge bridge = new Bridge(process, command.get(command.indexOf("--run") + 1), signal);
        try {
            bridge.begin(command.get(0));
        } catch (RuntimeException error) {
            bridge.close();
            throw error;
        }
        daemon("amfs tasks", bridge::read);
        return bridge;
    }

    private void begin(String python) {
        Map<?, ?> first = next();
        if (first == null) {
            String last = lastComplaint();
            if (last.contains("No module named 'amfs"))
                throw new AbortOperationException("amfs: " + python + " has no amfs: amfs.python names the Python that has it");
            throw new AbortOperationException("amfs: " + python + ": " + (last.isEmpty() ? "it ended without a word" : last));
        }
        if ("refused".equals(first.get("tell")))
            throw new AbortOperationException("amfs: " + first.get("why"));
        if (!(first.get("version") instanceof Number version) || version.intValue() != VERSION)
            throw new AbortOperationException("amfs: this nf-amfs speaks version " + VERSION + ", amfs says " + first
                + ": install those of one release");
        log.info("amfs: tasks run {}", first.get("where"));
    }

    long newKey() {
        return keys.incrementAndGet();
    }

    String runName() {
        return runName;
    }

    void submit(AmfsTaskHandler handler, Map<String, Object> job) {
        unfinished.put(handler.key(), handler);
        try {
            send(job);
        } catch (IOException error) {
            log.debug("[amfs] a task came too late: {}", error.getMessage());
        }
        if (ended)
            loseAll();
    }

    void kill(AmfsTaskHandler handler) {
        try {
            send(Map.of("do", "kill", "key", handler.key()));
        } catch (IOException error) {
            log.debug("[amfs] it has ended already, and its tasks with it: {}", error.getMessage());
        }
    }

    private void send(Map<String, Object> line) throws IOException {
        byte[] bytes = (JsonOutput.toJson(line) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (input) {
            input.write(bytes);
            input.flush();
        }
    }

    /** No more is wanted: tasks that run are killed. Waits until it has been. Repeatable. */
    void close() {
        try {
            synchronized (input) {
                input.close();
            }
            if (!process.waitFor(ENDS_S, TimeUnit.SECONDS)) {
                log.warn("amfs: it has not ended after {} s, and is killed", ENDS_S);
                process.destroyForcibly();
            }
        } catch (IOException error) {
            log.debug("[amfs] its standard input: {}", error.getMessage());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    // ── what it tells ─────────────────────────────────────────────────────────────────────────────

    private Map<?, ?> next() {
        try {
            String line = output.readLine();
            return line != null ? (Map<?, ?>) new JsonSlurper().parseText(line) : null;
        } catch (IOException error) {
            return null;
        }
    }

    private void read() {
        try {
            Map<?, ?> told;
            while ((told = next()) != null)
                take(told);
        } catch (RuntimeException error) {
            log.error("amfs: it told what cannot be understood", error);
        }
        if (over == null)
            over = lastComplaint().isEmpty() ? "its process has ended" : lastComplaint();
        ended = true;
        loseAll();
    }

    /** Nobody will tell how these ended. */
    private void loseAll() {
        for (AmfsTaskHandler handler : unfinished.values())
            handler.lost(over);
        unfinished.clear();
        signal.run();
    }

    private void take(Map<?, ?> told) {
        switch (String.valueOf(told.get("tell"))) {
            case "ended" -> {
                for (Object each : (List<?>) told.get("tasks")) {
                    Map<?, ?> task = (Map<?, ?>) each;
                    AmfsTaskHandler handler = unfinished.remove(((Number) task.get("key")).longValue());
                    if (handler != null)
                        handler.ended(task);
                }
                signal.run();
            }
            case "started" -> {
                for (Object each : (List<?>) told.get("tasks")) {
                    Map<?, ?> task = (Map<?, ?>) each;
                    AmfsTaskHandler handler = unfinished.get(((Number) task.get("key")).longValue());
                    if (handler != null)
                        handler.started(((Number) task.get("start")).longValue());
                }
                signal.run();
            }
            case "over" -> {
                over = String.valueOf(told.get("why"));
                ended = true;
                loseAll();
            }
            case "note" -> log.warn("amfs: {}", told.get("why"));
            default -> log.debug("[amfs] not known here: {}", told);
        }
    }

    private void readComplaints() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
            String line;
            while ((line = lines.readLine()) != null) {
                log.debug("[amfs] {}", line);
                synchronized (complaints) {
                    complaints.addLast(line);
                    if (complaints.size() > LINES_KEPT)
                        complaints.removeFirst();
                }
            }
        } catch (IOException error) {
            log.debug("[amfs] its standard error: {}", error.getMessage());
        }
    }

    private String lastComplaint() {
        try {
            complaintsReader.join(1000);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        synchronized (complaints) {
            return complaints.isEmpty() ? "" : complaints.peekLast().strip();
        }
    }

    private static Thread daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
