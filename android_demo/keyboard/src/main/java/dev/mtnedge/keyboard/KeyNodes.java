package dev.mtnedge.keyboard;

import android.annotation.TargetApi;
import android.content.Context;
import android.graphics.Rect;
import android.os.Build;
import android.os.Bundle;
import android.view.MotionEvent;
import android.view.View;
import android.view.ViewParent;
import android.view.accessibility.AccessibilityEvent;
import android.view.accessibility.AccessibilityManager;
import android.view.accessibility.AccessibilityNodeInfo;
import android.view.accessibility.AccessibilityNodeInfo.AccessibilityAction;
import android.view.accessibility.AccessibilityNodeProvider;
import android.widget.Button;
import java.util.List;

/** The keys as a screen reader sees them: a node for each, with what a long press offers as its actions. */
final class KeyNodes extends AccessibilityNodeProvider {
    /** The action that types the first text of a long press; the next ones follow. */
    static final int FIRST_ALTERNATE = 0x02000000;
    private static final int NONE = -1;

    private final KeyboardView view;
    private int hovered = NONE;
    private int focused = NONE;

    KeyNodes(KeyboardView view) {
        this.view = view;
    }

    /** Other keys are there now. */
    void onNewPage() {
        hovered = NONE;
        focused = NONE;
        onNewNames();
    }

    /** Keys are called otherwise now: screen readers remember the nodes until they hear that their parent changed. */
    void onNewNames() {
        if (manager().isEnabled()) {
            AccessibilityEvent event = event(AccessibilityEvent.TYPE_WINDOW_CONTENT_CHANGED);
            event.setContentChangeTypes(AccessibilityEvent.CONTENT_CHANGE_TYPE_SUBTREE);
            view.sendAccessibilityEventUnchecked(event);
        }
    }

    /** A finger explores; returns whether it was for the keys. */
    boolean onHover(MotionEvent event) {
        if (!manager().isTouchExplorationEnabled()) {
            return false;
        }
        boolean left = event.getActionMasked() == MotionEvent.ACTION_HOVER_EXIT;
        int now = left ? NONE : view.keys().indexOf(view.at(event.getX(), event.getY()));
        if (now != hovered) {
            send(now, AccessibilityEvent.TYPE_VIEW_HOVER_ENTER);
            send(hovered, AccessibilityEvent.TYPE_VIEW_HOVER_EXIT);
            hovered = now;
        }
        return true;
    }

    @Override
    @SuppressWarnings("deprecation")  // the constructors came with Android 11
    public AccessibilityNodeInfo createAccessibilityNodeInfo(int id) {
        if (id == View.NO_ID) {
            AccessibilityNodeInfo all = AccessibilityNodeInfo.obtain(view);
            view.onInitializeAccessibilityNodeInfo(all);
            for (int key = 0; key < view.keys().size(); key++) {
                all.addChild(view, key);
            }
            return all;
        }
        if (id < 0 || id >= view.keys().size()) {
            return null;
        }
        AccessibilityNodeInfo node = AccessibilityNodeInfo.obtain(view, id);
        describe(node, id);
        return node;
    }

    @SuppressWarnings("deprecation")  // bounds in the parent are read by older screen readers
    private void describe(AccessibilityNodeInfo node, int id) {
        Geometry.Placed placed = view.keys().get(id);
        node.setPackageName(view.getContext().getPackageName());
        node.setClassName(Button.class.getName());
        node.setParent(view);
        node.setContentDescription(spoken(placed.key));
        Rect bounds = new Rect();
        placed.area.round(bounds);
        node.setBoundsInParent(bounds);
        int[] corner = new int[2];
        view.getLocationOnScreen(corner);
        bounds.offset(corner[0], corner[1]);
        node.setBoundsInScreen(bounds);
        node.setEnabled(true);
        node.setVisibleToUser(view.isShown());
        node.setClickable(true);
        node.addAction(AccessibilityAction.ACTION_CLICK);
        if (isHeld(placed.key)) {
            node.setLongClickable(true);
            node.addAction(AccessibilityAction.ACTION_LONG_CLICK);
        }
        node.setAccessibilityFocused(focused == id);
        node.addAction(focused == id ? AccessibilityAction.ACTION_CLEAR_ACCESSIBILITY_FOCUS
                : AccessibilityAction.ACTION_ACCESSIBILITY_FOCUS);
        List<String> alternates = alternates(placed.key);
        for (int at = 0; at < alternates.size(); at++) {
            node.addAction(new AccessibilityAction(FIRST_ALTERNATE + at, alternates.get(at)));
        }
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.Q) {
            markAsKey(node);
        }
    }

    @TargetApi(Build.VERSION_CODES.Q)
    private static void markAsKey(AccessibilityNodeInfo node) {
        node.setTextEntryKey(true);  // lifting the finger may type it, as the user has set it
    }

    @Override
    public boolean performAction(int id, int action, Bundle arguments) {
        if (id == View.NO_ID) {
            return view.performAccessibilityAction(action, arguments);
        }
        if (id < 0 || id >= view.keys().size()) {
            return false;
        }
        Geometry.Placed placed = view.keys().get(id);
        if (action == AccessibilityNodeInfo.ACTION_CLICK) {
            view.onTyped(placed);
            send(id, AccessibilityEvent.TYPE_VIEW_CLICKED);
            return true;
        }
        if (action == AccessibilityNodeInfo.ACTION_LONG_CLICK && isHeld(placed.key)) {
            view.onHeld(placed);
            send(id, AccessibilityEvent.TYPE_VIEW_LONG_CLICKED);
            return true;
        }
        if (action == AccessibilityNodeInfo.ACTION_ACCESSIBILITY_FOCUS && focused != id) {
            focused = id;
            send(id, AccessibilityEvent.TYPE_VIEW_ACCESSIBILITY_FOCUSED);
            return true;
        }
        if (action == AccessibilityNodeInfo.ACTION_CLEAR_ACCESSIBILITY_FOCUS && focused == id) {
            focused = NONE;
            send(id, AccessibilityEvent.TYPE_VIEW_ACCESSIBILITY_FOCUS_CLEARED);
            return true;
        }
        return view.typeAlternate(placed.key, action - FIRST_ALTERNATE);
    }

    /** Whether a long press does something by itself, rather than offer texts. */
    private static boolean isHeld(Key key) {
        return key.kind == Key.Kind.SHIFT || key.kind.choosesKeyboard();
    }

    private List<String> alternates(Key key) {
        return Alternates.of(key, view.state().isUpper());
    }

    private String spoken(Key key) {
        return KeyFaces.spoken(key, view.state(), view.field(), view.getContext());
    }

    private void send(int id, int type) {
        ViewParent parent = view.getParent();
        if (id < 0 || id >= view.keys().size() || parent == null || !manager().isEnabled()) {
            return;
        }
        AccessibilityEvent event = event(type);
        event.setPackageName(view.getContext().getPackageName());
        event.setClassName(Button.class.getName());
        event.setContentDescription(spoken(view.keys().get(id).key));
        event.setSource(view, id);
        parent.requestSendAccessibilityEvent(view, event);
    }

    @SuppressWarnings("deprecation")  // the constructor came with Android 11
    private static AccessibilityEvent event(int type) {
        return AccessibilityEvent.obtain(type);
    }

    private AccessibilityManager manager() {
        return (AccessibilityManager) view.getContext().getSystemService(Context.ACCESSIBILITY_SERVICE);
    }
}
