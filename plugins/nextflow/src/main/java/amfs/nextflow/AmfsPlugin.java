package amfs.nextflow;

import nextflow.plugin.BasePlugin;
import org.pf4j.PluginWrapper;

/** What Nextflow loads; the executor is an extension of its own (META-INF/extensions.idx). */
public class AmfsPlugin extends BasePlugin {
    public AmfsPlugin(PluginWrapper wrapper) {
        super(wrapper);
    }
}
