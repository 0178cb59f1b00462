package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.Context;
import android.graphics.Insets;
import android.os.SystemClock;
import android.text.InputType;
import android.view.HapticFeedbackConstants;
import android.view.MotionEvent;
import android.view.View;
import android.view.WindowInsets;
import android.view.accessibility.AccessibilityManager;
import android.view.accessibility.AccessibilityNodeInfo;
import android.view.accessibility.AccessibilityNodeProvider;
import android.view.inputmethod.EditorInfo;
import java.util.List;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;
import org.robolectric.shadows.ShadowView;

/** For screen readers, for languages that run the other way, for screens with bars, for fingertips. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h891dp-port-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class AccessTest {
    private Phone phone;

    @Before
    public void start() {
        phone = Phone.withoutModel();
        phone.search();
    }

    @After
    public void stop() {
        phone.close();
    }

    @Test
    public void everyKeyIsANodeWithANameThatTypes() {
        AccessibilityNodeProvider nodes = phone.keys().getAccessibilityNodeProvider();
        List<Geometry.Placed> keys = phone.keys().keys();
        assertEquals(keys.size(), nodes.createAccessibilityNodeInfo(View.NO_ID).getChildCount());
        for (int id = 0; id < keys.size(); id++) {
            AccessibilityNodeInfo node = nodes.createAccessibilityNodeInfo(id);
            assertTrue(node.getContentDescription().length() > 0);
            assertTrue(node.isClickable() && node.isTextEntryKey());
        }
        assertEquals("Delete", name("DELETE"));
        assertEquals("Emoji", name("EMOJI"));
        assertEquals("Shift", name("SHIFT"));
        assertTrue(nodes.performAction(id("SHIFT"), AccessibilityNodeInfo.ACTION_CLICK, null));
        assertEquals("Shift, on", name("SHIFT"));
        assertEquals("H", name("h"));
        assertTrue(nodes.performAction(id("h"), AccessibilityNodeInfo.ACTION_CLICK, null));
        assertTrue(nodes.performAction(id("e"), KeyNodes.FIRST_ALTERNATE + 1, null));
        assertFalse(nodes.performAction(id("e"), KeyNodes.FIRST_ALTERNATE + 100, null));
        assertEquals("Hé", phone.text());
    }

    private int id(String key) {
        return phone.keys().keys().indexOf(phone.key(key));
    }

    private String name(String key) {
        AccessibilityNodeProvider nodes = phone.keys().getAccessibilityNodeProvider();
        return nodes.createAccessibilityNodeInfo(id(key)).getContentDescription().toString();
    }

    @Test
    public void aFingerThatExploresHearsTheKeys() {
        AccessibilityManager manager =
                (AccessibilityManager) phone.service.getSystemService(Context.ACCESSIBILITY_SERVICE);
        assertFalse(hover("q"));
        shadowOf(manager).setEnabled(true);
        shadowOf(manager).setTouchExplorationEnabled(true);
        assertTrue(hover("q"));
        assertTrue(hover("w"));
        assertEquals("", phone.text());
    }

    private boolean hover(String key) {
        Geometry.Placed placed = phone.key(key);
        long now = SystemClock.uptimeMillis();
        return phone.keys().dispatchHoverEvent(MotionEvent.obtain(
                now, now, MotionEvent.ACTION_HOVER_MOVE, placed.area.centerX(), placed.area.centerY(), 0));
    }

    @Test
    public void keysLieInsideTheBars() {
        View board = phone.find(R.id.keyboard);
        WindowInsets insets = new WindowInsets.Builder()
                .setInsets(WindowInsets.Type.systemBars(), Insets.of(30, 50, 40, 96))
                .build();
        board.dispatchApplyWindowInsets(insets);
        assertEquals(30, board.getPaddingLeft());
        assertEquals(40, board.getPaddingRight());
        assertEquals(96, board.getPaddingBottom());
        assertEquals(0, board.getPaddingTop());
    }

    @Test
    @Config(qualifiers = "ar-ldrtl-w411dp-h891dp-port-xhdpi")
    public void theStripRunsTheOtherWayButTheKeysDoNot() {
        assertTrue(phone.find(R.id.settings).getLeft() > phone.keys().getWidth() / 2);
        assertTrue(phone.key("q").area.left < phone.key("p").area.left);
        phone.type("q");
        assertEquals("q", phone.text());
        phone.setText("שלום");
        phone.tap("DELETE");
        assertEquals("שלו", phone.text());
    }

    @Test
    public void keysAreFeltUnlessSwitchedOff() {
        ShadowView view = shadowOf((View) phone.keys());
        phone.tap("a");
        assertEquals(HapticFeedbackConstants.KEYBOARD_TAP, view.lastHapticFeedbackPerformed());
        Settings.of(phone.service).setHaptics(false);
        phone.configure("w411dp-h891dp-port-night-xhdpi");
        ShadowView fresh = shadowOf((View) phone.keys());
        phone.tap("a");
        assertEquals(-1, fresh.lastHapticFeedbackPerformed());
    }

    @Test
    public void everyPageFillsTheWidthAndEveryPointHasAKey() {
        for (Page page : Page.values()) {
            Geometry geometry = new Geometry(page, 1000, 400, 5);
            for (int x = -10; x < 1010; x += 30) {
                for (int y = -10; y < 410; y += 30) {
                    assertTrue(geometry.keys.contains(geometry.at(x, y)));
                }
            }
            Geometry.Placed last = geometry.keys.get(geometry.keys.size() - 1);
            assertEquals(page.name(), 995, last.area.right, 0.01);
            assertEquals(page.name(), 400, last.area.bottom, 0.01);
        }
        phone.focus(InputType.TYPE_CLASS_NUMBER, EditorInfo.IME_ACTION_DONE);
        assertEquals(Page.NUMBERS, phone.keys().state().page());
    }
}
