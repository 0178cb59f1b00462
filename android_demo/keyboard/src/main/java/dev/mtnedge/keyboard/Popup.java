package dev.mtnedge.keyboard;

import android.graphics.RectF;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** What hovers over a pressed key: its letter, or what a long press offers. Coordinates are those of the keys. */
final class Popup {
    final List<String> labels;
    final RectF box;
    private final float cell;
    private int selected;

    private Popup(List<String> labels, RectF box, int selected) {
        this.labels = labels;
        this.box = box;
        this.cell = box.width() / labels.size();
        this.selected = selected;
    }

    /** The letter of a key, larger, above the finger. */
    static Popup letter(String label, RectF key, Look look) {
        float grow = look.gapAcross;
        return new Popup(Collections.singletonList(label),
                new RectF(key.left - grow, key.top - look.strip, key.right + grow, key.top), -1);
    }

    /** A row of texts that begins above the key, towards the side with more room. */
    static Popup row(List<String> texts, RectF key, Look look, float width) {
        boolean toTheLeft = key.centerX() > width / 2;
        List<String> labels = new ArrayList<>(texts);
        if (toTheLeft) {
            Collections.reverse(labels);
        }
        float cell = Math.min(look.cell, width / labels.size());
        float whole = cell * labels.size();
        float left = toTheLeft ? key.centerX() + cell / 2 - whole : key.centerX() - cell / 2;
        left = Math.max(0, Math.min(left, width - whole));
        return new Popup(labels, new RectF(left, key.top - look.strip, left + whole, key.top),
                toTheLeft ? labels.size() - 1 : 0);
    }

    /** The finger is at {@code x}. */
    void point(float x) {
        selected = Math.max(0, Math.min((int) ((x - box.left) / cell), labels.size() - 1));
    }

    /** The number of the text under the finger; -1 in a popup that only shows. */
    int selected() {
        return selected;
    }

    String text() {
        return labels.get(selected);
    }

    /** The place of a text. */
    RectF cell(int number) {
        return new RectF(box.left + number * cell, box.top, box.left + (number + 1) * cell, box.bottom);
    }
}
