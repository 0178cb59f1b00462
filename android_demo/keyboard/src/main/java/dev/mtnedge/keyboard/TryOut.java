package dev.mtnedge.keyboard;

import android.content.Context;
import android.os.Handler;
import android.os.Looper;
import android.text.Editable;
import android.text.TextUtils;
import android.text.TextWatcher;
import android.view.View;
import android.widget.EditText;
import android.widget.TextView;
import dev.mtnedge.suggester.SuggestResult;
import dev.mtnedge.suggester.Suggester;
import dev.mtnedge.suggester.SuggesterException;
import dev.mtnedge.suggester.SuggestionWorker;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** The field "try it here": what the bundle suggests for its text, whatever the keyboard, and how long that takes. */
final class TryOut implements TextWatcher, SuggestionWorker.Callback {
    private final Context context;
    private final EditText field;
    private final TextView list;
    private final TextView latency;
    private final List<Double> milliseconds = new ArrayList<>();
    private SuggestionWorker worker;

    TryOut(EditText field, TextView list, TextView latency) {
        context = field.getContext().getApplicationContext();
        this.field = field;
        this.list = list;
        this.latency = latency;
        field.addTextChangedListener(this);
    }

    /** Opens the bundle in force, on another thread; {@link #stop} must follow. */
    void start() {
        milliseconds.clear();
        if (Settings.of(context).suggestions()) {
            SuggestionWorker.Opener opener = () -> BundleStore.open(context);
            worker = new SuggestionWorker(opener, new Handler(Looper.getMainLooper())::post);
        }
        afterTextChanged(field.getText());
    }

    /** Closes it. */
    void stop() {
        if (worker != null) {
            worker.close();
            worker = null;
        }
    }

    @Override
    public void afterTextChanged(Editable text) {
        if (worker == null) {
            say(context.getString(R.string.latency_off));
        } else if (text.length() == 0) {
            worker.cancel();
            say(context.getString(R.string.latency_none));
        } else {
            if (milliseconds.isEmpty()) {
                say(context.getString(R.string.latency_opening));
            }
            worker.request(text.toString(), Suggestions.COUNT, this);
        }
    }

    @Override
    public void onSuggestions(SuggestResult result) {
        milliseconds.add(result.milliseconds());
        List<String> texts = result.texts();
        say(context.getResources().getQuantityString(R.plurals.latency, texts.size(), texts.size(),
                rounded(result.milliseconds()), rounded(median(milliseconds))));
        list.setText(TextUtils.join("\n", texts));
        list.setVisibility(texts.isEmpty() ? View.GONE : View.VISIBLE);
    }

    @Override
    public void onFault(SuggesterException fault) {
        say(fault.getMessage());
    }

    @Override
    public void beforeTextChanged(CharSequence text, int start, int count, int after) {}

    @Override
    public void onTextChanged(CharSequence text, int start, int before, int count) {}

    private void say(String sentence) {
        latency.setText(sentence);
        list.setVisibility(View.GONE);
    }

    private static String rounded(double value) {
        return String.format(Locale.getDefault(), "%.1f", value);
    }

    static double median(List<Double> values) {
        List<Double> sorted = new ArrayList<>(values);
        Collections.sort(sorted);
        int middle = sorted.size() / 2;
        return sorted.size() % 2 == 1 ? sorted.get(middle) : (sorted.get(middle - 1) + sorted.get(middle)) / 2;
    }
}
