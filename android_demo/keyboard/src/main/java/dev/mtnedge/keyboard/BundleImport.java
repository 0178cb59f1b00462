package dev.mtnedge.keyboard;

import android.content.Context;
import android.net.Uri;
import android.os.Handler;
import android.os.Looper;

/** The change of the bundle that the user asked for: made on another thread, and kept when the page is turned. */
final class BundleImport {
    /** What is done on the other thread. */
    private interface Work {
        BundleStore.Outcome run();
    }

    private final Context context;
    private final Handler main = new Handler(Looper.getMainLooper());
    private Runnable listener;
    private boolean busy;
    private String sentence = "";

    BundleImport(Context context) {
        this.context = context.getApplicationContext();
    }

    /** Runs on the main thread whenever something changes here; null for nothing. */
    void listen(Runnable to) {
        listener = to;
    }

    /** Whether a change is at work. */
    boolean isBusy() {
        return busy;
    }

    /** What the last change came to; empty when there was none. */
    String sentence() {
        return sentence;
    }

    /** Copies a bundle, checks it and puts it in force. */
    void from(Uri treeOrZip) {
        begin(() -> BundleStore.importFrom(context, treeOrZip));
    }

    /** Goes back to the bundle that came with the app. */
    void builtIn() {
        begin(() -> {
            BundleStore.useBuiltIn(context);
            return new BundleStore.Outcome(true, context.getString(R.string.bundle_was_reset));
        });
    }

    private void begin(Work work) {
        busy = true;
        tell(context.getString(R.string.bundle_busy));
        new Thread(() -> {
            BundleStore.Outcome outcome = work.run();
            main.post(() -> {
                busy = false;
                tell(outcome.sentence);
            });
        }, "mtn-edge import").start();
    }

    private void tell(String what) {
        sentence = what;
        if (listener != null) {
            listener.run();
        }
    }
}
