package dev.mtnedge.keyboard;

import android.text.InputType;
import android.view.inputmethod.EditorInfo;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** Pictures of the keyboard in target/screenshots, for people to look at. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h460dp-port-notnight-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class ScreenshotTest {
    @Test
    public void light() throws Exception {
        draw("keyboard-light");
    }

    @Test
    @Config(qualifiers = "night")
    public void dark() throws Exception {
        draw("keyboard-dark");
    }

    @Test
    @Config(qualifiers = "w820dp-h360dp-land-notnight-xhdpi")
    public void landscape() throws Exception {
        draw("keyboard-landscape");
    }

    private static void draw(String name) throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type("ho");
            phone.awaitSuggestions();
            phone.screenshot(name);
        }
    }

    @Test
    public void password() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.focus(InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_VARIATION_PASSWORD, EditorInfo.IME_ACTION_DONE);
            phone.type("secret");
            phone.screenshot("keyboard-password");
        }
    }

    @Test
    public void popup() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.tap("SHIFT");
            phone.press("e");
            org.robolectric.shadows.ShadowLooper.idleMainLooper(500, java.util.concurrent.TimeUnit.MILLISECONDS);
            phone.screenshot("keyboard-popup");
        }
    }

    @Test
    public void pages() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.tap("EMOJI");
            phone.screenshot("keyboard-emoji");
            phone.tap("PLACES");
            phone.screenshot("keyboard-emoji-2");
            phone.tap("LETTERS");
            phone.tap("SYMBOLS");
            phone.screenshot("keyboard-symbols");
            phone.tap("MORE");
            phone.screenshot("keyboard-more");
            phone.focus(InputType.TYPE_CLASS_NUMBER, EditorInfo.IME_ACTION_NEXT);
            phone.screenshot("keyboard-numbers");
        }
    }
}
