package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import android.content.Context;
import java.util.ArrayList;
import java.util.List;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowLooper;

/** What is chosen stays chosen, and whoever listens hears of it. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35)
public class SettingsTest {
    private final Context context = RuntimeEnvironment.getApplication();

    @Test
    public void suggestionsAndHapticsAreOnAndTheBundleIsTheBuiltInOneUntilSomethingIsChosen() {
        Settings settings = Settings.of(context);
        assertTrue(settings.suggestions());
        assertTrue(settings.haptics());
        assertNull(settings.chosenBundle());
    }

    @Test
    public void whatIsChosenIsSeenByOthers() {
        Settings settings = Settings.of(context);
        settings.setSuggestions(false);
        settings.setHaptics(false);
        settings.setChosenBundle("mine");
        Settings other = Settings.of(context);
        assertFalse(other.suggestions());
        assertFalse(other.haptics());
        assertEquals("mine", other.chosenBundle());
        other.setChosenBundle(null);
        assertNull(settings.chosenBundle());
    }

    @Test
    public void aListenerHearsOfEachChangeUntilItIsRemoved() {
        List<Boolean> heard = new ArrayList<>();
        Settings settings = Settings.of(context);
        Runnable listener = () -> heard.add(settings.haptics());
        settings.onChange(listener);
        Settings.of(context).setHaptics(false);
        ShadowLooper.idleMainLooper();
        Settings.of(context).setHaptics(true);
        ShadowLooper.idleMainLooper();
        settings.removeOnChange(listener);
        settings.removeOnChange(listener);
        Settings.of(context).setHaptics(false);
        ShadowLooper.idleMainLooper();
        List<Boolean> right = new ArrayList<>();
        right.add(false);
        right.add(true);
        assertEquals(right, heard);
    }
}
