package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.graphics.RectF;
import android.os.Build;
import android.text.InputType;
import android.view.inputmethod.EditorInfo;
import android.view.inputmethod.InputMethodManager;
import java.util.Arrays;
import java.util.Collections;
import org.junit.Before;
import org.junit.Test;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.Implementation;
import org.robolectric.annotation.Implements;
import org.robolectric.shadows.ShadowInputMethodManager;
import org.robolectric.util.ReflectionHelpers;

/** The key to the next keyboard. */
@Config(shadows = GlobeTest.Pickers.class)
public class GlobeTest extends PhoneCase {
    /** Counts how often the system's list of keyboards was shown. */
    @Implements(InputMethodManager.class)
    public static final class Pickers extends ShadowInputMethodManager {
        private static int shown;

        @Implementation
        protected void showInputMethodPicker() {
            shown++;
        }
    }

    @Before
    public void forgetPickers() {
        Pickers.shown = 0;
    }

    private void offer() {
        phone.others.offered = true;
        phone.search();
    }

    @Test
    public void aTapLeadsToTheNextKeyboardOfWhateverApp() {
        offer();
        assertEquals("Next keyboard", spoken("GLOBE"));
        phone.tap("GLOBE");
        assertEquals(Collections.singletonList(false), phone.others.switches);
        assertEquals(0, Pickers.shown);
        assertEquals("", phone.text());
    }

    @Test
    public void aLongPressShowsAllKeyboardsAndDoesNotSwitch() {
        offer();
        phone.hold("GLOBE", 500);
        assertEquals(1, Pickers.shown);
        assertEquals(Collections.emptyList(), phone.others.switches);
        phone.hold("SPACE", 500);
        assertEquals(2, Pickers.shown);
        assertEquals("", phone.text());
    }

    @Test
    public void allKeyboardsAreShownWhereThereIsNoNextOne() {
        offer();
        phone.others.hasNext = false;
        phone.tap("GLOBE");
        assertEquals(1, Pickers.shown);
    }

    @Test
    public void whereItIsNotOfferedTheRowIsAsItWas() {
        offer();
        phone.others.offered = false;
        phone.search();
        assertThrows(AssertionError.class, () -> phone.key("GLOBE"));
        assertEquals(4 * phone.key("q").area.width(), phone.key("SPACE").area.width(), 0.01);
        assertEquals(phone.key("SYMBOLS").area.right, phone.key(",").area.left, 0);
    }

    /** On Android 8 the manager answers, for the token of the keyboard's window. */
    @Test
    public void olderAndroidsAreAskedThroughTheirManager() {
        int now = Build.VERSION.SDK_INT;
        ReflectionHelpers.setStaticField(Build.VERSION.class, "SDK_INT", Build.VERSION_CODES.O_MR1);
        try {
            phone.othersByToken.offered = true;
            phone.search();
            phone.tap("GLOBE");
            phone.hold("GLOBE", 500);
            assertEquals(Collections.singletonList(false), phone.othersByToken.switches);
            assertEquals(Collections.emptyList(), phone.others.switches);
            assertEquals(1, Pickers.shown);
        } finally {
            ReflectionHelpers.setStaticField(Build.VERSION.class, "SDK_INT", now);
        }
    }

    @Test
    public void itHasItsPlaceOnEveryPage() {
        offer();
        fits();
    }

    @Test
    @Config(qualifiers = "w891dp-h411dp-land-xhdpi")
    public void itHasItsPlaceInLandscape() {
        offer();
        fits();
    }

    @Test
    @Config(qualifiers = "ar-ldrtl-w320dp-h568dp-port-xhdpi")
    public void itHasItsPlaceOnANarrowPhoneWhoseLanguageRunsTheOtherWay() {
        offer();
        fits();
    }

    /** At the same place on all pages but that of numbers, as wide as a letter, with a blank that thumbs find. */
    private void fits() {
        RectF globe = phone.key("GLOBE").area;
        float column = phone.key("q").area.width();
        for (String page : Arrays.asList("SYMBOLS", "MORE", "LETTERS", "EMOJI", "PLACES", "FOOD", "THINGS")) {
            phone.tap(page);
            assertEquals(page, globe, phone.key("GLOBE").area);
            assertEquals(column, globe.width(), 0.01);
            assertTrue(page, phone.key("SPACE").area.width() > 2.99f * column);
            assertTrue(globe.right < phone.key("SPACE").area.right);
        }
        phone.focus(InputType.TYPE_CLASS_NUMBER, EditorInfo.IME_ACTION_DONE);
        assertEquals(phone.key("8").area.left, phone.key("0").area.left, 0.01);
        assertTrue(phone.key("GLOBE").area.width() > column);
        assertEquals(phone.key("SYMBOLS").area.right, phone.key("GLOBE").area.left, 0.01);
    }
}
