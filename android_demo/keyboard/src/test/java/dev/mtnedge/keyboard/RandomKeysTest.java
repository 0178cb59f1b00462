package dev.mtnedge.keyboard;

import static org.junit.Assert.assertEquals;

import android.graphics.RectF;
import android.text.InputType;
import android.view.MotionEvent;
import android.view.accessibility.AccessibilityNodeInfo;
import android.view.inputmethod.EditorInfo;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;
import org.robolectric.annotation.GraphicsMode;

/** Thousands of events that no hand would make. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, qualifiers = "w411dp-h891dp-port-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
public class RandomKeysTest {
    private static final int EVENTS = 5000;
    private static final int[] TYPES = {
        0, InputType.TYPE_CLASS_TEXT, InputType.TYPE_CLASS_NUMBER, InputType.TYPE_CLASS_PHONE,
        InputType.TYPE_CLASS_DATETIME, InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_FLAG_CAP_SENTENCES,
        InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_FLAG_MULTI_LINE,
        InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_VARIATION_PASSWORD,
        InputType.TYPE_CLASS_TEXT | InputType.TYPE_TEXT_VARIATION_URI,
    };
    private static final String[] SCREENS = {
        "w411dp-h891dp-port-notnight-xhdpi", "w891dp-h411dp-land-notnight-xhdpi", "w411dp-h891dp-port-night-xhdpi",
    };

    @Test
    public void noneOfThemDoesAnyHarm() throws Exception {
        List<Throwable> escaped = Collections.synchronizedList(new ArrayList<>());
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> escaped.add(error));
        Random random = new Random(9);
        try (Phone phone = Phone.withBundle()) {
            phone.search();
            for (int event = 0; event < EVENTS; event++) {
                happen(phone, random);
            }
            phone.search();
            phone.setText("");
            phone.type("a");
            assertEquals("a", phone.text());
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
        assertEquals(Collections.emptyList(), escaped);
    }

    private static void happen(Phone phone, Random random) {
        int what = random.nextInt(1000);
        if (what < 550) {
            List<Geometry.Placed> keys = phone.keys().keys();
            RectF key = keys.get(random.nextInt(keys.size())).area;
            phone.touch(MotionEvent.ACTION_DOWN, key.centerX(), key.centerY());
            phone.touch(MotionEvent.ACTION_UP, key.centerX(), key.centerY());
        } else if (what < 750) {
            touchAnywhere(phone, random);
        } else if (what < 830) {
            phone.pass(random.nextInt(600));
        } else if (what < 880) {
            tapTheStrip(phone, random);
        } else if (what < 920) {
            int length = phone.text().length();
            phone.editor.setSelection(random.nextInt(length + 1), random.nextInt(length + 1));
        } else if (what < 950) {
            int node = random.nextInt(60) - 2;
            int[] actions = {AccessibilityNodeInfo.ACTION_CLICK, AccessibilityNodeInfo.ACTION_ACCESSIBILITY_FOCUS,
                KeyNodes.FIRST_ALTERNATE + random.nextInt(12)};
            phone.keys().getAccessibilityNodeProvider().performAction(node, actions[random.nextInt(3)], null);
        } else if (what < 985) {
            phone.others.offered = random.nextBoolean();
            int flags = random.nextInt(4) == 0 ? EditorInfo.IME_FLAG_NO_PERSONALIZED_LEARNING : 0;
            phone.focus(TYPES[random.nextInt(TYPES.length)], random.nextInt(8) | flags);
        } else if (what < 990) {
            phone.configure(SCREENS[random.nextInt(SCREENS.length)]);
        } else {
            phone.setText(random.nextBoolean() ? "" : "hotels\nin 👩‍🏫 b\u0301");
        }
        if (random.nextInt(3) > 0) {
            phone.idle();
        }
    }

    private static void touchAnywhere(Phone phone, Random random) {
        float x = random.nextInt(2200) - 100;
        float y = random.nextInt(700) - 100;
        int[] actions = {MotionEvent.ACTION_DOWN, MotionEvent.ACTION_MOVE, MotionEvent.ACTION_UP,
            MotionEvent.ACTION_CANCEL, MotionEvent.ACTION_POINTER_DOWN, MotionEvent.ACTION_POINTER_UP};
        int action = actions[random.nextInt(actions.length)];
        if (action == MotionEvent.ACTION_POINTER_DOWN || action == MotionEvent.ACTION_POINTER_UP) {
            phone.touchTwo(action, random.nextInt(2), new RectF(x, y, x + 2, y + 2), new RectF(y, y, y + 2, y + 2));
        } else {
            phone.touch(action, x, y);
        }
    }

    /** The strip's own keys. */
    private static void tapTheStrip(Phone phone, Random random) {
        int places = phone.suggestions().size();
        if (places > 0 && random.nextInt(8) > 0) {
            phone.tapSuggestion(random.nextInt(places));
        } else if (phone.isShown(R.id.clear)) {
            phone.find(R.id.clear).performClick();
        }
    }
}
