package dev.mtnedge.keyboard;

import android.app.Activity;
import android.content.ActivityNotFoundException;
import android.content.Intent;
import android.os.Bundle;
import android.view.View;
import android.view.inputmethod.InputMethodInfo;
import android.view.inputmethod.InputMethodManager;
import android.widget.Switch;
import android.widget.TextView;

/** The settings, and on the first run how to switch the keyboard on. */
public final class SettingsActivity extends Activity {
    static final int FOLDER = 1;
    static final int ZIP = 2;
    private static final String[] ZIP_TYPES = {
        "application/zip", "application/x-zip-compressed", "application/octet-stream",
    };

    private final Runnable refresh = this::refresh;
    private Settings settings;
    private BundleImport bundleImport;
    private TryOut tryOut;
    /** What the field is tried with; it is opened anew when this changes. */
    private String tried;

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        setContentView(R.layout.settings);
        settings = Settings.of(this);
        Object kept = getLastNonConfigurationInstance();
        bundleImport = kept == null ? new BundleImport(this) : (BundleImport) kept;
        tryOut = new TryOut(findViewById(R.id.try_field), findViewById(R.id.try_list), findViewById(R.id.latency));
        keepClearOfBars(findViewById(R.id.settings_page));
        onClick(R.id.setup_allow, () -> open(new Intent(android.provider.Settings.ACTION_INPUT_METHOD_SETTINGS), 0));
        onClick(R.id.setup_take, () -> keyboards().showInputMethodPicker());
        onClick(R.id.bundle_folder, () -> open(new Intent(Intent.ACTION_OPEN_DOCUMENT_TREE), FOLDER));
        onClick(R.id.bundle_zip, () -> open(zipPicker(), ZIP));
        onClick(R.id.bundle_reset, () -> bundleImport.builtIn());
        Switch suggestions = findViewById(R.id.settings_suggestions);
        suggestions.setChecked(settings.suggestions());
        suggestions.setOnCheckedChangeListener((view, on) -> settings.setSuggestions(on));
        Switch haptics = findViewById(R.id.settings_haptics);
        haptics.setChecked(settings.haptics());
        haptics.setOnCheckedChangeListener((view, on) -> settings.setHaptics(on));
    }

    @Override
    protected void onStart() {
        super.onStart();
        settings.onChange(refresh);
        bundleImport.listen(refresh);
        refresh();
    }

    @Override
    protected void onStop() {
        settings.removeOnChange(refresh);
        bundleImport.listen(null);
        tryOut.stop();
        tried = null;
        super.onStop();
    }

    @Override
    public Object onRetainNonConfigurationInstance() {
        return bundleImport;
    }

    /** The system's list and its chooser are other windows: what was done there shows when this one is back. */
    @Override
    public void onWindowFocusChanged(boolean focused) {
        super.onWindowFocusChanged(focused);
        if (focused) {
            showSetup();
        }
    }

    @Override
    protected void onActivityResult(int request, int result, Intent data) {
        super.onActivityResult(request, result, data);
        boolean picked = result == RESULT_OK && data != null && data.getData() != null;
        if (picked && (request == FOLDER || request == ZIP)) {
            bundleImport.from(data.getData());
        }
    }

    private void refresh() {
        showSetup();
        String chosen = settings.chosenBundle();
        text(R.id.bundle_name, chosen == null
                ? getString(R.string.bundle_built_in) : getString(R.string.bundle_chosen, chosen));
        text(R.id.bundle_status, bundleImport.sentence());
        findViewById(R.id.bundle_status).setVisibility(bundleImport.sentence().isEmpty() ? View.GONE : View.VISIBLE);
        boolean free = !bundleImport.isBusy();
        findViewById(R.id.bundle_folder).setEnabled(free);
        findViewById(R.id.bundle_zip).setEnabled(free);
        findViewById(R.id.bundle_reset).setEnabled(free && chosen != null);
        String now = settings.suggestions() + " " + chosen;
        if (!now.equals(tried)) {
            tryOut.stop();
            tryOut.start();
            tried = now;
        }
    }

    private void showSetup() {
        boolean enabled = false;
        for (InputMethodInfo each : keyboards().getEnabledInputMethodList()) {
            enabled |= each.getPackageName().equals(getPackageName());
        }
        String current = android.provider.Settings.Secure.getString(
                getContentResolver(), android.provider.Settings.Secure.DEFAULT_INPUT_METHOD);
        boolean ready = enabled && current != null && current.startsWith(getPackageName() + "/");
        findViewById(R.id.setup_ready).setVisibility(ready ? View.VISIBLE : View.GONE);
        findViewById(R.id.setup_steps).setVisibility(ready ? View.GONE : View.VISIBLE);
        text(R.id.setup_allow, getString(enabled ? R.string.setup_done : R.string.setup_allow));
        findViewById(R.id.setup_allow).setEnabled(!enabled);
        findViewById(R.id.setup_take).setEnabled(enabled);
    }

    private static Intent zipPicker() {
        return new Intent(Intent.ACTION_OPEN_DOCUMENT)
                .addCategory(Intent.CATEGORY_OPENABLE)
                .setType("*/*")
                .putExtra(Intent.EXTRA_MIME_TYPES, ZIP_TYPES);
    }

    private void open(Intent page, int request) {
        try {
            startActivityForResult(page, request);
        } catch (ActivityNotFoundException error) {
            text(R.id.bundle_status, getString(R.string.no_picker));
            findViewById(R.id.bundle_status).setVisibility(View.VISIBLE);
        }
    }

    /** The page goes to the edges of the screen; its content keeps clear of bars and of the keyboard. */
    @SuppressWarnings("deprecation")  // what replaces it needs API level 30
    private static void keepClearOfBars(View page) {
        page.setOnApplyWindowInsetsListener((view, insets) -> {
            view.setPadding(insets.getSystemWindowInsetLeft(), insets.getSystemWindowInsetTop(),
                    insets.getSystemWindowInsetRight(), insets.getSystemWindowInsetBottom());
            return insets;
        });
    }

    private InputMethodManager keyboards() {
        return (InputMethodManager) getSystemService(INPUT_METHOD_SERVICE);
    }

    private void onClick(int id, Runnable action) {
        findViewById(id).setOnClickListener(view -> action.run());
    }

    private void text(int id, String what) {
        ((TextView) findViewById(id)).setText(what);
    }
}
