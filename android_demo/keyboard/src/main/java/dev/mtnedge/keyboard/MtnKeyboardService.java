package dev.mtnedge.keyboard;

import android.content.Intent;
import android.inputmethodservice.InputMethodService;
import android.os.Build;
import android.os.Handler;
import android.os.Looper;
import android.os.SystemClock;
import android.view.View;
import android.view.Window;
import android.view.WindowInsets;
import android.view.inputmethod.EditorInfo;
import android.view.inputmethod.InputConnection;
import dev.mtnedge.suggester.SuggestResult;
import dev.mtnedge.suggester.SuggesterException;
import dev.mtnedge.suggester.SuggestionWorker;
import java.util.Collections;
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
    private OtherKeyboards others;
    private Settings settings;
    private Suggestions suggestions;
    private boolean faulty;
    private Field field = Field.NONE;
    private KeyboardView keys;
    private SuggestionStrip strip;
    /** Whether the keys are on the screen, and not only connected with a field, as while one types on hardware. */
    private boolean shown;

    @Override
    public void onCreate() {
        super.onCreate();
        others = new OtherKeyboards(this);
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
        suggestions.cancel();  // the new strip has nothing yet
        colourBar(getWindow().getWindow());
        board.setOnApplyWindowInsetsListener((view, insets) -> keepClear(view, insets));
        return board;
    }

    /** The navigation bar below the keys is as light or as dark as they are; the window outlives a change to night. */
    @SuppressWarnings("deprecation")  // from Android 15 on the window shows through the bar
    private void colourBar(Window window) {
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.O) {  // before, its buttons are white
            View decor = window.getDecorView();
            int flags = decor.getSystemUiVisibility() & ~View.SYSTEM_UI_FLAG_LIGHT_NAVIGATION_BAR;
            boolean light = getResources().getBoolean(R.bool.keyboard_is_light);
            decor.setSystemUiVisibility(light ? flags | View.SYSTEM_UI_FLAG_LIGHT_NAVIGATION_BAR : flags);
            window.setNavigationBarColor(getColor(R.color.keyboard_background));
        }
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
        Page before = field.firstPage;
        field = new Field(info);
        if (!restarting || field.firstPage != before) {  // apps turn a field for words into one for numbers in place
            state.reset(field.firstPage);
        }
        if (!restarting && faulty && suggestions.areOn()) {
            suggestions.reopen();  // whatever was wrong may be over
            faulty = false;
        }
        suggestions.cancel();
    }

    @Override
    public void onStartInputView(EditorInfo info, boolean restarting) {
        super.onStartInputView(info, restarting);
        shown = true;
        state.offerGlobe(others.areOffered());
        if (!restarting) {  // apps restart at any time, in the middle of a touch too
            keys.forgetFinger();
            strip.show("", Collections.emptyList());
        }
        read();
    }

    @Override
    public void onFinishInputView(boolean finishing) {
        super.onFinishInputView(finishing);
        shown = false;
        keys.forgetFinger();
        suggestions.cancel();
    }

    @Override
    public void onFinishInput() {
        super.onFinishInput();
        field = Field.NONE;
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
                edit(editor -> editor.delete(field));
                break;
            case ENTER:
                edit(this::enter);
                break;
            case GLOBE:
                others.next();
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
        others.choose();
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
        if (strip != null) {
            strip.show(result.typed(), result.texts());
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
        String query = field.issuesQueries() ? editor.wholeLine() : null;
        editor.enter(field);
        if (query != null) {
            suggestions.issued(query);
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
        if (connection == null || !shown) {
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
