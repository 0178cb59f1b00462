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
import android.view.Window;
import android.view.WindowInsets;
import android.view.accessibility.AccessibilityEvent;
import android.view.accessibility.AccessibilityManager;
import android.view.accessibility.AccessibilityNodeInfo;
import android.view.accessibility.AccessibilityNodeProvider;
import android.view.inputmethod.EditorInfo;
import java.util.List;
import org.junit.Test;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowView;

/** For screen readers, for languages that run the other way, for screens with bars, for fingertips. */
public class AccessTest extends PhoneCase {
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

    @Test
    public void aLongPressOfAScreenReaderLocksShift() {
        AccessibilityNodeProvider nodes = phone.keys().getAccessibilityNodeProvider();
        assertTrue(nodes.createAccessibilityNodeInfo(id("SHIFT")).isLongClickable());
        assertTrue(nodes.performAction(id("SHIFT"), AccessibilityNodeInfo.ACTION_LONG_CLICK, null));
        assertEquals("Caps lock, on", name("SHIFT"));
        assertFalse(nodes.createAccessibilityNodeInfo(id("h")).isLongClickable());
        assertFalse(nodes.performAction(id("h"), AccessibilityNodeInfo.ACTION_LONG_CLICK, null));
    }

    @Test
    public void screenReadersAreToldWhenKeysAreCalledOtherwise() {
        phone.tap("a");
        assertEquals(0, changes());
        shadowOf(manager()).setEnabled(true);
        phone.tap("a");
        assertEquals(0, changes());
        phone.tap("SHIFT");
        assertEquals(1, changes());
        phone.tap("SYMBOLS");
        assertEquals(2, changes());
    }

    /** How often it was said that all the keys may be others now. */
    private long changes() {
        return shadowOf(manager()).getSentAccessibilityEvents().stream()
                .filter(event -> event.getEventType() == AccessibilityEvent.TYPE_WINDOW_CONTENT_CHANGED
                        && event.getContentChangeTypes() == AccessibilityEvent.CONTENT_CHANGE_TYPE_SUBTREE)
                .filter(event -> View.class.getName().contentEquals(event.getClassName()))
                .count();
    }

    private AccessibilityManager manager() {
        return (AccessibilityManager) phone.service.getSystemService(Context.ACCESSIBILITY_SERVICE);
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
        assertFalse(hover("q"));
        shadowOf(manager()).setEnabled(true);
        shadowOf(manager()).setTouchExplorationEnabled(true);
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
    @SuppressWarnings("deprecation")  // as Android 8 to 14 have it
    public void theNavigationBarTurnsDarkWithTheKeys() {
        Window window = phone.service.getWindow().getWindow();
        assertEquals(View.SYSTEM_UI_FLAG_LIGHT_NAVIGATION_BAR, lightBar(window));
        assertEquals(0xffe9ecf1, window.getNavigationBarColor());
        phone.configure("w411dp-h891dp-port-night-xhdpi");
        assertEquals(0, lightBar(window));
        assertEquals(0xff191c21, window.getNavigationBarColor());
    }

    @SuppressWarnings("deprecation")  // as above
    private static int lightBar(Window window) {
        return window.getDecorView().getSystemUiVisibility() & View.SYSTEM_UI_FLAG_LIGHT_NAVIGATION_BAR;
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
            check(page, new Geometry(page, false, 1000, 400, 5));
            check(page, new Geometry(page, true, 1000, 400, 5));
        }
        phone.focus(InputType.TYPE_CLASS_NUMBER, EditorInfo.IME_ACTION_DONE);
        assertEquals(Page.NUMBERS, phone.keys().state().page());
    }

    private static void check(Page page, Geometry geometry) {
        for (int x = -10; x < 1010; x += 30) {
            for (int y = -10; y < 410; y += 30) {
                assertTrue(geometry.keys.contains(geometry.at(x, y)));
            }
        }
        Geometry.Placed last = geometry.keys.get(geometry.keys.size() - 1);
        assertEquals(page.name(), 995, last.area.right, 0.01);
        assertEquals(page.name(), 400, last.area.bottom, 0.01);
    }
}
