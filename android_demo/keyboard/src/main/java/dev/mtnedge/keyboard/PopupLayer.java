package dev.mtnedge.keyboard;

import android.content.Context;
import android.graphics.Canvas;
import android.graphics.Paint;
import android.graphics.RectF;
import android.util.AttributeSet;
import android.view.View;

/** Draws what hovers over the keys. It covers keys and strip, in their own window, and takes no touch. */
public final class PopupLayer extends View {
    private final Look look;
    private final Paint fill = new Paint(Paint.ANTI_ALIAS_FLAG);
    private final Paint text = new Paint(Paint.ANTI_ALIAS_FLAG);
    private Popup popup;
    private float keysTop;

    public PopupLayer(Context context, AttributeSet attributes) {
        super(context, attributes);
        look = new Look(context);
        text.setTextAlign(Paint.Align.CENTER);
    }

    /**
     * Shows a popup, or none.
     *
     * @param top pixels from the top of this layer to the keys.
     */
    void show(Popup shown, float top) {
        popup = shown;
        keysTop = top;
        invalidate();
    }

    /** As large as what lies below: by itself it would take the whole screen. */
    @Override
    protected void onMeasure(int width, int height) {
        setMeasuredDimension(resolveSize(0, width), resolveSize(0, height));
    }

    @Override
    protected void onDraw(Canvas canvas) {
        if (popup == null) {
            return;
        }
        canvas.translate(0, keysTop);
        float inset = look.gapAcross / 2;
        RectF box = new RectF(popup.box);
        box.inset(0, inset);
        fill.setColor(look.shadow);
        canvas.drawRoundRect(box.left - 1, box.top - 1, box.right + 1, box.bottom + inset, look.corner * 1.5f,
                look.corner * 1.5f, fill);
        fill.setColor(look.popup);
        canvas.drawRoundRect(box, look.corner * 1.5f, look.corner * 1.5f, fill);
        for (int number = 0; number < popup.labels.size(); number++) {
            drawCell(canvas, number, inset);
        }
    }

    private void drawCell(Canvas canvas, int number, float inset) {
        RectF cell = popup.cell(number);
        boolean selected = number == popup.selected();
        if (selected) {
            cell.inset(inset, 2 * inset);
            fill.setColor(look.accent);
            canvas.drawRoundRect(cell, look.corner, look.corner, fill);
        }
        text.setColor(selected ? look.accentLabel : look.label);
        text.setTextSize(popup.selected() < 0 ? look.letter * 1.25f : look.letter);
        float base = cell.centerY() - (text.ascent() + text.descent()) / 2;
        canvas.drawText(popup.labels.get(number), cell.centerX(), base, text);
    }
}
