package dev.mtnedge.keyboard;

import android.content.Intent;
import android.inputmethodservice.InputMethodService;
import android.os.Handler;
import android.os.Looper;
import android.os.SystemClock;
import android.view.View;
import android.view.WindowInsets;
import android.view.inputmethod.EditorInfo;
import android.view.inputmethod.InputConnection;
import android.view.inputmethod.InputMethodManager;
import dev.mtnedge.suggester.SuggestResult;
import dev.mtnedge.suggester.SuggesterException;
import dev.mtnedge.suggester.Suggestion;
import dev.mtnedge.suggester.SuggestionWorker;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/** The keyboard: keys type, and whatever the model finds meanwhile appears above them. */
public final class MtnKeyboardService extends InputMethodService
        implements KeyboardView.Listener, SuggestionStrip.Listener, SuggestionWorker.Callback {
    private final Handler main = new Handler(Looper.getMainLooper());
    private final Runnable read = this::read;
    private final Runnable settingsChanged = this::useSettings;
    private final KeyboardState state = new KeyboardState();
    /** Where the model comes from. */
    SuggestionWorker.Opener opener = () -> BundleStore.open(this);
    /** Brings its answers to the main thread. */
    Executor answers = main::post;
    private Settings settings;
    private Suggestions suggestions;
    private boolean faulty;
    private Field field = Field.NONE;
    private KeyboardView keys;
    private SuggestionStrip strip;

    @Override
    public void onCreate() {
        setTheme(R.style.KeyboardTheme);
        super.onCreate();
        settings = Settings.of(this);
        settings.onChange(settingsChanged);
        suggestions = new Suggestions(opener, answers, this);
        useSettings();
    }

    @Override
    public void onDestroy() {
        settings.removeOnChange(settingsChanged);
        suggestions.close();
        main.removeCallbacks(read);
        super.onDestroy();
    }

    @Override
    public View onCreateInputView() {
        View board = getLayoutInflater().inflate(R.layout.keyboard, null);
        PopupLayer popups = board.findViewById(R.id.popups);
        if (keys != null) {
            keys.forgetFinger();
        }
        keys = board.findViewById(R.id.keys);
        KeyboardView current = keys;
        keys.start(state, this, popup -> popups.show(popup, current.getTop()));
        strip = new SuggestionStrip(board, this);
        board.setOnApplyWindowInsetsListener((view, insets) -> keepClear(view, insets));
        return board;
    }

    /** The window reaches under the navigation bar and the camera's notch; the keys do not. */
    @SuppressWarnings("deprecation")  // what takes its place came with Android 11
    private static WindowInsets keepClear(View view, WindowInsets insets) {
        view.setPadding(insets.getSystemWindowInsetLeft(), 0, insets.getSystemWindowInsetRight(),
                insets.getSystemWindowInsetBottom());
        return insets;
    }

    /** The field stays in sight when the phone is turned. */
    @Override
    public boolean onEvaluateFullscreenMode() {
        return false;
    }

    @Override
    public void onStartInput(EditorInfo info, boolean restarting) {
        super.onStartInput(info, restarting);
        field = new Field(info);
        if (!restarting) {
            state.reset(field.firstPage);
            if (faulty && suggestions.areOn()) {
                suggestions.reopen();  // whatever was wrong may be over
                faulty = false;
            }
        }
        suggestions.cancel();
    }

    @Override
    public void onStartInputView(EditorInfo info, boolean restarting) {
        super.onStartInputView(info, restarting);
        if (!restarting) {  // apps restart at any time, in the middle of a touch too
            keys.forgetFinger();
            strip.show("", Collections.emptyList());
        }
        read();
    }

    @Override
    public void onFinishInput() {
        super.onFinishInput();
        field = Field.NONE;
        suggestions.cancel();
        main.removeCallbacks(read);
    }

    @Override
    public void onUpdateSelection(int oldStart, int oldEnd, int start, int end, int composingStart, int composingEnd) {
        super.onUpdateSelection(oldStart, oldEnd, start, end, composingStart, composingEnd);
        readSoon();
    }

    @Override
    public void onKey(Key key) {
        switch (key.kind) {
            case SHIFT:
                state.tapShift(SystemClock.uptimeMillis());
                break;
            case PAGE:
                state.show(key.page());
                break;
            case DELETE:
                edit(Editor::delete);
                break;
            case ENTER:
                edit(this::enter);
                break;
            default:
                onText(state.textOf(key));
        }
        keys.update(field);
    }

    @Override
    public void onText(String text) {
        edit(editor -> editor.type(text));
        state.typed(text);
        keys.update(field);
    }

    @Override
    public void onChooseKeyboard() {
        ((InputMethodManager) getSystemService(INPUT_METHOD_SERVICE)).showInputMethodPicker();
    }

    @Override
    public boolean isFelt() {
        return settings.haptics();
    }

    @Override
    public void onSuggestion(String text) {
        edit(editor -> editor.replaceLine(text));
    }

    @Override
    public void onSettings() {
        startActivity(new Intent(this, SettingsActivity.class).addFlags(Intent.FLAG_ACTIVITY_NEW_TASK));
        requestHideSelf(0);
    }

    @Override
    public void onClear() {
        suggestions.reopen();
        read();
    }

    @Override
    public void onSuggestions(SuggestResult result) {
        faulty = false;
        List<String> texts = new ArrayList<>();
        for (Suggestion suggestion : result.suggestions()) {
            texts.add(suggestion.text());
        }
        if (strip != null) {
            strip.show(result.typed(), texts);
        }
    }

    @Override
    public void onFault(SuggesterException fault) {
        faulty = true;
        if (strip != null) {
            String why = fault.getMessage().split(";")[0];  // the rest is for who makes bundles
            strip.say(getString(R.string.keyboard_fault, why), 0);
        }
    }

    private void useSettings() {
        suggestions.use(settings.suggestions(), settings.chosenBundle());
        readSoon();
    }

    private void edit(Consumer<Editor> work) {
        InputConnection connection = getCurrentInputConnection();
        if (connection != null) {
            work.accept(new Editor(connection));
            readSoon();
        }
    }

    private void enter(Editor editor) {
        Editor.Line line = field.issuesQueries() ? editor.line() : null;
        editor.enter(field);
        if (line != null) {
            suggestions.issued(line.before + line.after);
        }
    }

    /** Reads the field after the keys that wait already, once for all of them. */
    private void readSoon() {
        main.removeCallbacks(read);
        main.post(read);
    }

    /** Brings shift and strip up to what the field holds now. */
    private void read() {
        InputConnection connection = getCurrentInputConnection();
        if (connection == null || keys == null) {
            return;
        }
        Editor editor = new Editor(connection);
        state.capitals(editor.wantsCapital(field));
        keys.update(field);
        strip.offerClearing(suggestions.hasHistory() && !field.isPrivate);
        if (field.isPrivate) {
            strip.say(getString(R.string.keyboard_private), R.drawable.keyboard_lock);
            return;
        }
        Editor.Line line = editor.line();
        if (line != null && suggestions.areOn()) {
            strip.narrow(line.before);
            suggestions.ask(line.before);
        } else {
            suggestions.cancel();
            strip.show("", Collections.emptyList());
        }
    }
}
