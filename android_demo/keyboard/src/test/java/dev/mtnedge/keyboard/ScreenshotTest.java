package dev.mtnedge.keyboard;

import android.text.InputType;
import android.view.inputmethod.EditorInfo;
import java.util.Locale;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** Pictures of the keyboard in target/screenshots, for people to look at. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h420dp-port-notnight-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class ScreenshotTest {
    @Test
    public void light() throws Exception {
        draw("keyboard-light");
    }

    @Test
    @Config(qualifiers = "w411dp-h420dp-port-night-xhdpi")
    public void dark() throws Exception {
        draw("keyboard-dark");
    }

    @Test
    @Config(qualifiers = "w820dp-h340dp-land-notnight-xhdpi")
    public void landscape() throws Exception {
        draw("keyboard-landscape");
    }

    private static void draw(String name) throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.awaitSuggestions();
            phone.tapSuggestion(0);
            phone.tap("ENTER");
            phone.setText("");
            phone.type(Bundles.beginning());
            phone.awaitSuggestions();
            phone.screenshot(name);
        }
    }

    @Test
    public void globe() throws Exception {
        drawWithGlobe("keyboard-globe");
    }

    @Test
    @Config(qualifiers = "ar-ldrtl-w820dp-h340dp-land-night-xhdpi")
    public void globeInLandscape() throws Exception {
        drawWithGlobe("keyboard-globe-landscape");
    }

    private static void drawWithGlobe(String name) throws Exception {
        try (Phone phone = Phone.withoutModel()) {
            phone.others.offered = true;
            phone.search();
            phone.screenshot(name);
            phone.focus(InputType.TYPE_CLASS_NUMBER, EditorInfo.IME_ACTION_NEXT);
            phone.screenshot(name + "-numbers");
        }
    }

    @Test
    public void password() throws Exception {
        try (Phone phone = Phone.withoutModel()) {
            phone.focus(InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_VARIATION_PASSWORD, EditorInfo.IME_ACTION_DONE);
            phone.type("secret");
            phone.screenshot("keyboard-password");
        }
    }

    @Test
    public void longPress() throws Exception {
        try (Phone phone = Phone.withoutModel()) {
            phone.search();
            phone.tap("SHIFT");
            phone.press("e");
            phone.pass(500);
            phone.screenshot("keyboard-long-press");
            phone.release();
            phone.press("h");
            phone.screenshot("keyboard-press");
        }
    }

    @Test
    public void pages() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.awaitSuggestions();
            for (String page : new String[] {"EMOJI", "PLACES", "FOOD", "THINGS", "LETTERS", "SYMBOLS", "MORE"}) {
                phone.tap(page);
                phone.screenshot("page-" + page.toLowerCase(Locale.ROOT));
            }
            phone.focus(InputType.TYPE_CLASS_NUMBER, EditorInfo.IME_ACTION_NEXT);
            phone.screenshot("page-numbers");
        }
    }

    @Test
    @Config(qualifiers = "ar-ldrtl-w411dp-h420dp-port-notnight-xhdpi")
    public void rightToLeft() throws Exception {
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            phone.type(Bundles.beginning());
            phone.awaitSuggestions();
            phone.screenshot("keyboard-right-to-left");
        }
    }

    @Test
    public void fault() throws Exception {
        try (Phone phone = Phone.withoutModel()) {
            phone.search();
            phone.await(() -> !phone.notice().isEmpty());
            phone.screenshot("keyboard-fault");
        }
    }
}
