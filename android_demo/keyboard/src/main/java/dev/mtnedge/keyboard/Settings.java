package dev.mtnedge.keyboard;

import android.content.Context;
import android.content.SharedPreferences;
import java.util.IdentityHashMap;
import java.util.Map;

/** What the user has chosen. Nothing that was typed is ever in here. */
final class Settings {
    private static final String FILE = "settings";
    private static final String SUGGESTIONS = "suggestions";
    private static final String HAPTICS = "haptics";
    private static final String BUNDLE = "bundle";

    private final SharedPreferences preferences;
    /** Held here, since the preferences hold their listeners weakly. */
    private final Map<Runnable, SharedPreferences.OnSharedPreferenceChangeListener> listeners =
            new IdentityHashMap<>();

    private Settings(SharedPreferences preferences) {
        this.preferences = preferences;
    }

    static Settings of(Context context) {
        return new Settings(context.getSharedPreferences(FILE, Context.MODE_PRIVATE));
    }

    /** Whether the strip shows suggestions; the keyboard types without them too. */
    boolean suggestions() {
        return preferences.getBoolean(SUGGESTIONS, true);
    }

    void setSuggestions(boolean on) {
        preferences.edit().putBoolean(SUGGESTIONS, on).apply();
    }

    /** Whether a key is felt. */
    boolean haptics() {
        return preferences.getBoolean(HAPTICS, true);
    }

    void setHaptics(boolean on) {
        preferences.edit().putBoolean(HAPTICS, on).apply();
    }

    /** The bundle in force by its name in {@link BundleStore}; null for the one that came with the app. */
    String chosenBundle() {
        return preferences.getString(BUNDLE, null);
    }

    /** Kept when this returns, since the bundle before is removed then; for a worker thread. */
    void setChosenBundle(String name) {
        preferences.edit().putString(BUNDLE, name).commit();
    }

    /** Runs {@code listener} on the main thread after each change, as long as this object is held. */
    void onChange(Runnable listener) {
        SharedPreferences.OnSharedPreferenceChangeListener made = (changed, key) -> listener.run();
        listeners.put(listener, made);
        preferences.registerOnSharedPreferenceChangeListener(made);
    }

    void removeOnChange(Runnable listener) {
        preferences.unregisterOnSharedPreferenceChangeListener(listeners.remove(listener));
    }
}
