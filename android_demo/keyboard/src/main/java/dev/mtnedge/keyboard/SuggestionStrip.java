package dev.mtnedge.keyboard;

import android.content.Context;
import android.graphics.Typeface;
import android.graphics.drawable.Drawable;
import android.text.SpannableString;
import android.text.Spanned;
import android.text.style.ForegroundColorSpan;
import android.text.style.StyleSpan;
import android.view.LayoutInflater;
import android.view.View;
import android.view.ViewGroup;
import android.widget.HorizontalScrollView;
import android.widget.TextView;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** The line above the keys: suggestions or one short sentence, and the keys to the settings and to a clean history. */
final class SuggestionStrip {
    /** What a user may do here. */
    interface Listener {
        void onSuggestion(String text);

        void onSettings();

        void onClear();
    }

    private final Context context;
    private final HorizontalScrollView scroll;
    private final ViewGroup places;
    private final TextView notice;
    private final View clear;
    private List<String> shown = Collections.emptyList();

    SuggestionStrip(View root, Listener listener) {
        context = root.getContext();
        scroll = root.findViewById(R.id.scroll);
        places = root.findViewById(R.id.suggestions);
        notice = root.findViewById(R.id.notice);
        clear = root.findViewById(R.id.clear);
        clear.setOnClickListener(view -> listener.onClear());
        root.findViewById(R.id.settings).setOnClickListener(view -> listener.onSettings());
        places.addOnLayoutChangeListener((view, left, top, right, bottom, oldLeft, oldTop, oldRight, oldBottom) ->
                scrollToFirst());
        for (int place = 0; place < Suggestions.COUNT; place++) {
            int number = place;
            View chip = LayoutInflater.from(context).inflate(R.layout.keyboard_suggestion, places, false);
            chip.setOnClickListener(view -> {
                if (number < shown.size()) {  // a click comes a little later than its finger, and lists change
                    listener.onSuggestion(shown.get(number));
                }
            });
            chip.setVisibility(View.GONE);
            places.addView(chip);
        }
    }

    /** Shows suggestions, each with what was typed faint and what it adds strong. */
    void show(String typed, List<String> texts) {
        notice.setVisibility(View.GONE);
        scroll.setVisibility(View.VISIBLE);
        shown = new ArrayList<>(texts.subList(0, Math.min(texts.size(), places.getChildCount())));
        for (int place = 0; place < places.getChildCount(); place++) {
            TextView chip = (TextView) places.getChildAt(place);
            boolean used = place < shown.size();
            chip.setVisibility(used ? View.VISIBLE : View.GONE);
            chip.setText(used ? styled(typed, shown.get(place)) : "");
            chip.setContentDescription(used ? context.getString(R.string.keyboard_suggestion, shown.get(place)) : "");
        }
    }

    /** Until the next list comes, keeps of this one what goes on with what is typed now. */
    void narrow(String typed) {
        List<String> left = new ArrayList<>();
        for (String text : shown) {
            if (text.toLowerCase(Locale.ROOT).startsWith(typed.toLowerCase(Locale.ROOT))) {
                left.add(text);
            }
        }
        if (left.size() < shown.size()) {
            show(typed, left);
        }
    }

    /** Shows a sentence in the place of suggestions, with an icon or 0 for none. */
    void say(CharSequence sentence, int icon) {
        show("", Collections.emptyList());
        scroll.setVisibility(View.GONE);
        notice.setVisibility(View.VISIBLE);
        if (!sentence.toString().contentEquals(notice.getText())) {  // or it would be read aloud again with each key
            notice.setText(sentence);
            Drawable drawn = icon == 0 ? null : context.getDrawable(icon).mutate();
            if (drawn != null) {
                int size = (int) (notice.getTextSize() * 1.4f);
                drawn.setTint(notice.getCurrentTextColor());
                drawn.setBounds(0, 0, size, size);
            }
            notice.setCompoundDrawablesRelative(drawn, null, null, null);
        }
    }

    void offerClearing(boolean offered) {
        clear.setVisibility(offered ? View.VISIBLE : View.GONE);
    }

    /** Where the line begins in the user's language. */
    private void scrollToFirst() {
        scroll.scrollTo(scroll.getLayoutDirection() == View.LAYOUT_DIRECTION_RTL ? places.getWidth() : 0, 0);
    }

    private CharSequence styled(String typed, String text) {
        SpannableString styled = new SpannableString(text);
        int end = text.length() > typed.length() && text.startsWith(typed) ? typed.length() : 0;
        styled.setSpan(new ForegroundColorSpan(context.getColor(R.color.keyboard_faint)), 0, end,
                Spanned.SPAN_EXCLUSIVE_EXCLUSIVE);
        styled.setSpan(new StyleSpan(end > 0 ? Typeface.BOLD : Typeface.NORMAL), end, text.length(),
                Spanned.SPAN_EXCLUSIVE_EXCLUSIVE);
        return styled;
    }
}
