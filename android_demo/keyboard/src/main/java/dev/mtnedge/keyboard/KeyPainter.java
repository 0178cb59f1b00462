package dev.mtnedge.keyboard;

import android.content.Context;
import android.graphics.Canvas;
import android.graphics.Paint;
import android.graphics.RectF;
import android.graphics.drawable.Drawable;
import android.util.SparseArray;

/** Draws keys. */
final class KeyPainter {
    private final Context context;
    private final Look look;
    private final Paint fill = new Paint(Paint.ANTI_ALIAS_FLAG);
    private final Paint text = new Paint(Paint.ANTI_ALIAS_FLAG);
    private final RectF box = new RectF();
    private final SparseArray<Drawable> icons = new SparseArray<>();

    KeyPainter(Context context, Look look) {
        this.context = context;
        this.look = look;
        text.setTextAlign(Paint.Align.CENTER);
    }

    void draw(Canvas canvas, Geometry.Placed placed, boolean pressed, KeyboardState state, Field field) {
        Key key = placed.key;
        box.set(placed.area);
        box.inset(look.gapAcross / 2, look.gapDown / 2);
        boolean emoji = key.kind == Key.Kind.TEXT && state.page().hasEmoji();
        if (!emoji || pressed) {
            drawFace(canvas, pressed ? look.pressed : face(key));
        }
        int icon = KeyFaces.icon(key, state, field);
        int ink = key.kind == Key.Kind.ENTER && !pressed ? look.accentLabel : look.label;
        if (icon != 0) {
            drawIcon(canvas, icon, ink);
            return;
        }
        boolean letter = key.kind == Key.Kind.TEXT;
        text.setColor(key.kind == Key.Kind.SPACE ? look.faint : ink);
        drawText(canvas, KeyFaces.label(key, state, field, context), letter ? look.letter : look.word);
        drawHint(canvas, state.page() == Page.LETTERS ? Alternates.hint(key) : "");
    }

    private int face(Key key) {
        switch (key.kind) {
            case ENTER:
                return look.accent;
            case TEXT:
            case SPACE:
                return look.key;
            default:
                return look.function;
        }
    }

    private void drawFace(Canvas canvas, int colour) {
        float depth = look.corner / 7;
        fill.setColor(look.shadow);
        canvas.drawRoundRect(box.left, box.top + depth, box.right, box.bottom + depth, look.corner, look.corner, fill);
        fill.setColor(colour);
        canvas.drawRoundRect(box, look.corner, look.corner, fill);
    }

    private void drawIcon(Canvas canvas, int id, int ink) {
        Drawable icon = icons.get(id);
        if (icon == null) {
            icon = context.getDrawable(id).mutate();
            icons.put(id, icon);
        }
        int left = Math.round(box.centerX() - look.icon / 2);
        int top = Math.round(box.centerY() - look.icon / 2);
        icon.setBounds(left, top, left + Math.round(look.icon), top + Math.round(look.icon));
        icon.setTint(ink);
        icon.draw(canvas);
    }

    /** In the middle of the box, smaller where it would not fit. */
    private void drawText(Canvas canvas, String label, float size) {
        text.setTextSize(size);
        float fits = Math.min(1, 0.9f * box.width() / text.measureText(label));
        text.setTextSize(size * fits);
        canvas.drawText(label, box.centerX(), box.centerY() - (text.ascent() + text.descent()) / 2, text);
    }

    private void drawHint(Canvas canvas, String hint) {
        if (!hint.isEmpty()) {
            text.setTextSize(look.hint);
            text.setColor(look.faint);
            canvas.drawText(hint, box.right - look.hint * 0.65f, box.top + look.hint * 1.1f, text);
        }
    }
}
