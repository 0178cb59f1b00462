package dev.mtnedge.keyboard;

import android.content.Context;
import android.graphics.Canvas;
import android.util.AttributeSet;
import android.view.HapticFeedbackConstants;
import android.view.MotionEvent;
import android.view.View;
import android.view.accessibility.AccessibilityNodeProvider;
import java.util.List;
import java.util.function.Consumer;

/** The keys of one page, drawn by hand. */
public final class KeyboardView extends View implements Touch.Target {
    /** What keys do; all of it on the main thread. */
    interface Listener {
        void onKey(Key key);

        /** A text that a long press offered. */
        void onText(String text);

        void onChooseKeyboard();

        /** Whether keys are to be felt. */
        boolean isFelt();
    }

    private final Look look;
    private final KeyPainter painter;
    private final Touch touch;
    private final KeyNodes nodes = new KeyNodes(this);
    private KeyboardState state = new KeyboardState();
    private Field field = Field.NONE;
    private Listener listener;
    private Consumer<Popup> popups;
    /** What the keys are laid out for. */
    private Page page = Page.LETTERS;
    private boolean globe;
    /** What the keys are called after. */
    private KeyboardState.Shift shift = KeyboardState.Shift.OFF;
    private Geometry geometry = new Geometry(page, globe, 0, 0, 0);
    private Geometry.Placed pressed;

    public KeyboardView(Context context, AttributeSet attributes) {
        super(context, attributes);
        look = new Look(context);
        painter = new KeyPainter(context, look);
        touch = new Touch(this, look.gapDown);
    }

    /** @param popups shows a popup, or none for null. */
    void start(KeyboardState state, Listener listener, Consumer<Popup> popups) {
        this.state = state;
        this.listener = listener;
        this.popups = popups;
    }

    /** Draws the state and the field as they are now. */
    void update(Field current) {
        boolean renamed = field != current || shift != state.shift();
        field = current;
        shift = state.shift();
        if (page != state.page() || globe != state.hasGlobe()) {
            layOut(getWidth(), getHeight());
        } else if (renamed) {
            nodes.onNewNames();
        }
        invalidate();
    }

    /** A finger that is down types nothing any more. */
    void forgetFinger() {
        touch.forget();
    }

    /** Types what a long press on a key offers, by its number; returns whether there is such a text. */
    boolean typeAlternate(Key key, int number) {
        List<String> texts = Alternates.of(key, state.isUpper());
        boolean there = 0 <= number && number < texts.size();
        if (there) {
            listener.onText(texts.get(number));
        }
        return there;
    }

    List<Geometry.Placed> keys() {
        return geometry.keys;
    }

    KeyboardState state() {
        return state;
    }

    Field field() {
        return field;
    }

    @Override
    public Geometry.Placed at(float x, float y) {
        return geometry.at(x, y);
    }

    @Override
    public void onPressed(Geometry.Placed placed) {
        pressed = placed;
        if (placed != null && listener.isFelt()) {
            performHapticFeedback(HapticFeedbackConstants.KEYBOARD_TAP);
        }
        boolean letter = placed != null && placed.key.kind == Key.Kind.TEXT && !field.isPrivate;  // nobody looks on
        popups.accept(letter ? Popup.letter(state.textOf(placed.key), placed.area, look) : null);
        invalidate();
    }

    @Override
    public void onTyped(Geometry.Placed placed) {
        listener.onKey(placed.key);
    }

    @Override
    public Popup onHeld(Geometry.Placed placed) {
        Key key = placed.key;
        if (key.kind.choosesKeyboard()) {
            listener.onChooseKeyboard();
        } else if (key.kind == Key.Kind.SHIFT) {
            state.lockShift();
            update(field);
        }
        List<String> texts = Alternates.of(key, state.isUpper());
        if (texts.isEmpty()) {
            return null;
        }
        Popup popup = Popup.row(texts, placed.area, look, getWidth());
        popups.accept(popup);
        if (listener.isFelt()) {
            performHapticFeedback(HapticFeedbackConstants.LONG_PRESS);
        }
        return popup;
    }

    @Override
    public void onPointed(Popup popup) {
        popups.accept(popup);
    }

    @Override
    public void onChosen(Popup popup) {
        listener.onText(popup.text());
    }

    @Override
    protected void onMeasure(int width, int height) {
        setMeasuredDimension(MeasureSpec.getSize(width), Math.round(look.row * Page.ROWS + look.edge));
    }

    @Override
    protected void onSizeChanged(int width, int height, int oldWidth, int oldHeight) {
        layOut(width, height);
    }

    private void layOut(int width, int height) {
        page = state.page();
        globe = state.hasGlobe();
        geometry = new Geometry(page, globe, width, height - look.edge, look.edge);
        nodes.onNewPage();
    }

    @Override
    protected void onDraw(Canvas canvas) {
        for (Geometry.Placed placed : geometry.keys) {
            painter.draw(canvas, placed, placed == pressed, state, field);
        }
    }

    @Override
    public boolean onTouchEvent(MotionEvent event) {
        touch.on(event);
        return true;
    }

    @Override
    protected boolean dispatchHoverEvent(MotionEvent event) {
        return nodes.onHover(event) || super.dispatchHoverEvent(event);
    }

    @Override
    public AccessibilityNodeProvider getAccessibilityNodeProvider() {
        return nodes;
    }

    @Override
    protected void onDetachedFromWindow() {
        touch.forget();
        super.onDetachedFromWindow();
    }
}
