package amfs.nextflow;

import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

import nextflow.exception.AbortOperationException;
import nextflow.executor.Executor;
import nextflow.processor.TaskHandler;
import nextflow.processor.TaskMonitor;
import nextflow.processor.TaskPollingMonitor;
import nextflow.processor.TaskRun;
import nextflow.util.Duration;
import nextflow.util.ServiceName;
import org.pf4j.ExtensionPoint;

/**
 * The executor "amfs" of Nextflow: owns the process that holds the connection to amfs ({@link Bridge}) and the settings of the scope
 * <code>amfs</code> in nextflow.config. How one task goes is {@link AmfsTaskHandler}'s.
 */
@ServiceName("amfs")
public class AmfsExecutor extends Executor implements ExtensionPoint {
    static final int QUEUE_SIZE = 1000; // tasks handed over at a time, unless executor.queueSize says otherwise
    static final String POLL_INTERVAL = "1sec"; // ends of tasks are told at once; this is for the rest
    private static final Set<String> SETTINGS = new TreeSet<>(Set.of("python", "session", "slots"));

    private Bridge bridge;

    @Override
    protected TaskMonitor createTaskMonitor() {
        try {
            return TaskPollingMonitor.create(getSession(), getName(), QUEUE_SIZE, Duration.of(POLL_INTERVAL));
        } catch (NoSuchMethodError error) {
            throw new AbortOperationException("amfs: this nf-amfs was made for another Nextflow: " + error.getMessage());
        }
    }

    @Override
    public void register() {
        super.register();
        if (getWorkDir().getFileSystem() != FileSystems.getDefault())
            throw new AbortOperationException("amfs: the work directory is one that all nodes see, not " + getWorkDir().toUri());
        bridge = Bridge.start(command(settings()), this::signal);
    }

    private Map<?, ?> settings() {
        Object given = getSession().getConfig().get("amfs");
        if (given == null)
            return Map.of();
        if (!(given instanceof Map<?, ?> settings))
            throw new AbortOperationException("amfs: the setting amfs is a scope, as in: amfs { session = 'lab' }");
        for (Object name : settings.keySet())
            if (!SETTINGS.contains(String.valueOf(name)))
                throw new AbortOperationException("amfs: no such setting: amfs." + name + "; there are: " + String.join(", ", SETTINGS));
        return settings;
    }

    private List<String> command(Map<?, ?> settings) {
        String fromEnvironment = System.getenv("AMFS_PYTHON");
        String python = settings.get("python") != null ? settings.get("python").toString()
            : fromEnvironment != null && !fromEnvironment.isEmpty() ? fromEnvironment : "python3";
        List<String> command = new ArrayList<>(List.of(python, "-m", "amfs.plugs.nextflow", "--run", getSession().getRunName()));
        for (String name : List.of("session", "slots"))
            if (settings.get(name) != null)
                command.add("--" + name + "=" + settings.get(name));
        return command;
    }

    @Override
    public TaskHandler createTaskHandler(TaskRun task) {
        Path folder = task.getWorkDir();
        if (folder == null)
            throw new IllegalStateException("a task without a work directory: " + task.getName());
        return new AmfsTaskHandler(task, bridge);
    }

    /** Nextflow is at its end. Tasks that still run are killed. */
    @Override
    public void shutdown() {
        if (bridge != null)
            bridge.close();
    }
}
