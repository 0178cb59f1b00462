package dev.mtnedge.keyboard;

import android.os.Handler;
import android.os.Looper;
import android.view.MotionEvent;

/**
 * From fingers to keys. A key acts when its finger leaves it, shift and delete when it comes; a second finger lets go
 * of the first one's key, so that two thumbs can be fast.
 */
final class Touch {
    private static final int HOLD = 320;
    private static final int FIRST_REPEAT = 420;
    private static final int REPEAT = 50;
    private static final int NO_FINGER = -1;

    /** The keys under the fingers. */
    interface Target {
        Geometry.Placed at(float x, float y);

        /** A key is under the finger, or none is any more. */
        void onPressed(Geometry.Placed placed);

        void onTyped(Geometry.Placed placed);

        /** A key was held down; gives what it offers then, null for nothing. */
        Popup onHeld(Geometry.Placed placed);

        /** Another text of the popup is under the finger. */
        void onPointed(Popup popup);

        void onChosen(Popup popup);
    }

    private final Target target;
    /** Pixels that a finger may be off its key before that changes. */
    private final float slop;
    private final Handler clock = new Handler(Looper.getMainLooper());
    private final Runnable hold = this::hold;
    private final Runnable repeat = this::repeat;
    private int finger = NO_FINGER;
    private Geometry.Placed placed;
    private Popup popup;
    /** Whether the key has acted already. */
    private boolean done;

    Touch(Target target, float slop) {
        this.target = target;
        this.slop = slop;
    }

    void on(MotionEvent event) {
        int index = event.getActionIndex();
        switch (event.getActionMasked()) {
            case MotionEvent.ACTION_DOWN:
            case MotionEvent.ACTION_POINTER_DOWN:
                release();
                finger = event.getPointerId(index);
                press(target.at(event.getX(index), event.getY(index)));
                break;
            case MotionEvent.ACTION_MOVE:
                int moved = event.findPointerIndex(finger);
                if (moved >= 0) {
                    move(event.getX(moved), event.getY(moved));
                }
                break;
            case MotionEvent.ACTION_UP:
            case MotionEvent.ACTION_POINTER_UP:
                if (event.getPointerId(index) == finger) {
                    release();
                }
                break;
            default:
                forget();
        }
    }

    /** The finger's key, popup and clocks are gone, and nothing is typed. */
    void forget() {
        clock.removeCallbacks(hold);
        clock.removeCallbacks(repeat);
        finger = NO_FINGER;
        popup = null;
        if (placed != null) {
            placed = null;
            target.onPressed(null);
        }
    }

    private void press(Geometry.Placed pressed) {
        placed = pressed;
        done = pressed.key.kind.actsAtOnce();
        target.onPressed(pressed);
        if (pressed.key.kind == Key.Kind.DELETE) {
            clock.postDelayed(repeat, FIRST_REPEAT);
        } else {
            clock.postDelayed(hold, HOLD);
        }
        if (done) {
            target.onTyped(pressed);
        }
    }

    private void move(float x, float y) {
        if (popup != null) {
            int before = popup.selected();
            popup.point(x);
            if (popup.selected() != before) {
                target.onPointed(popup);
            }
        } else if (!done && !isOn(x, y)) {
            clock.removeCallbacks(hold);
            Geometry.Placed other = target.at(x, y);
            if (!other.key.kind.actsAtOnce()) {  // such a key was not meant by a finger that slid onto it
                press(other);
            }
        } else if (done && placed != null && !isOn(x, y)) {
            clock.removeCallbacks(repeat);
            clock.removeCallbacks(hold);
        }
    }

    private boolean isOn(float x, float y) {
        return placed.area.left - slop <= x && x < placed.area.right + slop
                && placed.area.top - slop <= y && y < placed.area.bottom + slop;
    }

    private void release() {
        Geometry.Placed released = placed;
        Popup chosen = popup;
        boolean acted = done;
        forget();
        if (chosen != null) {
            target.onChosen(chosen);
        } else if (released != null && !acted) {
            target.onTyped(released);
        }
    }

    private void hold() {
        popup = target.onHeld(placed);
        done |= popup == null && placed != null && placed.key.kind.choosesKeyboard();
    }

    private void repeat() {
        clock.postDelayed(repeat, REPEAT);  // first, for the field's answer may end it
        target.onTyped(placed);
    }
}
