package dev.mtnedge.keyboard;

import android.app.Activity;

/** The settings, and on the first run how to switch the keyboard on. */
public final class SettingsActivity extends Activity {}
