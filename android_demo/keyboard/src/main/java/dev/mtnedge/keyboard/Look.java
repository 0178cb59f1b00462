package dev.mtnedge.keyboard;

import android.content.Context;
import android.content.res.Resources;

/** Colours and sizes (pixels) of the keyboard, as the theme and the orientation have them. */
final class Look {
    final int key;
    final int function;
    final int pressed;
    final int shadow;
    final int label;
    final int faint;
    final int accent;
    final int accentLabel;
    final int popup;
    final float row;
    final float gapAcross;
    final float gapDown;
    final float edge;
    final float strip;
    final float letter;
    final float word;
    final float hint;
    final float icon;
    final float corner;
    final float cell;

    Look(Context context) {
        key = context.getColor(R.color.keyboard_key);
        function = context.getColor(R.color.keyboard_function);
        pressed = context.getColor(R.color.keyboard_pressed);
        shadow = context.getColor(R.color.keyboard_shadow);
        label = context.getColor(R.color.keyboard_label);
        faint = context.getColor(R.color.keyboard_faint);
        accent = context.getColor(R.color.keyboard_accent);
        accentLabel = context.getColor(R.color.keyboard_accent_label);
        popup = context.getColor(R.color.keyboard_popup);
        Resources sizes = context.getResources();
        row = sizes.getDimension(R.dimen.keyboard_row);
        gapAcross = sizes.getDimension(R.dimen.keyboard_gap_across);
        gapDown = sizes.getDimension(R.dimen.keyboard_gap_down);
        edge = sizes.getDimension(R.dimen.keyboard_edge);
        strip = sizes.getDimension(R.dimen.keyboard_strip);
        letter = sizes.getDimension(R.dimen.keyboard_letter);
        word = sizes.getDimension(R.dimen.keyboard_word);
        hint = sizes.getDimension(R.dimen.keyboard_hint);
        icon = sizes.getDimension(R.dimen.keyboard_icon);
        corner = sizes.getDimension(R.dimen.keyboard_corner);
        cell = sizes.getDimension(R.dimen.keyboard_cell);
    }
}
