package dev.mtnedge.keyboard;

import android.graphics.RectF;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Where the keys of a page lie. The areas of a row touch each other: every point belongs to a key. */
final class Geometry {
    /** A key and the area that a finger may hit, in pixels. */
    static final class Placed {
        final Key key;
        final RectF area;

        Placed(Key key, RectF area) {
            this.key = key;
            this.area = area;
        }
    }

    final List<Placed> keys;
    private final List<List<Placed>> rows = new ArrayList<>();
    private final float rowHeight;

    /**
     * Lays a page out.
     *
     * @param globe whether it has the key to the next keyboard.
     * @param edge pixels that stay free at the left and at the right.
     */
    Geometry(Page page, boolean globe, float width, float height, float edge) {
        List<Placed> all = new ArrayList<>();
        float column = (width - 2 * edge) / page.columns;
        rowHeight = height / Page.ROWS;
        for (List<Key> row : page.rows(globe)) {
            float top = rows.size() * rowHeight;
            float columns = 0;
            for (Key key : row) {
                columns += key.width;
            }
            float left = (width - columns * column) / 2;
            List<Placed> placed = new ArrayList<>();
            for (Key key : row) {
                float right = left + key.width * column;
                placed.add(new Placed(key, new RectF(left, top, right, top + rowHeight)));
                left = right;
            }
            rows.add(placed);
            all.addAll(placed);
        }
        keys = Collections.unmodifiableList(all);
    }

    /** The key nearest to a point, in its row. */
    Placed at(float x, float y) {
        int row = Math.max(0, Math.min((int) (y / rowHeight), rows.size() - 1));
        for (Placed placed : rows.get(row)) {
            if (x < placed.area.right) {
                return placed;
            }
        }
        return rows.get(row).get(rows.get(row).size() - 1);
    }
}
